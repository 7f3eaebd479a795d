// Gradients of norms. One pass over memory where a row fits into a block's registers: blocks go over rows,
// with the next row on its way while one is worked on, and keep sums for the weight and the bias. Other rows
// take a pass for dx and the rows' statistics, then one for the columns' sums.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_columns.cuh"

namespace orrery::cuda {
namespace {

template <class T>
struct GradArrays {
  const T *x, *weight, *dy, *residual;
  T* dx;
  float *dweight, *dbias;  // Partial rows, one for each block; or none.
  std::int64_t rows;
  int width;
  float epsilon;
};

// kCount sums over a group of kWarps warps. `shared` changes from call to call between two places, so that
// one barrier is enough: who writes a place again has been through the barrier of the other.
constexpr int kMostSums = 3;

template <int kWarps, int kCount>
__device__ __forceinline__ void group_sums(float (&x)[kCount], float (*shared)[kMostSums]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = warp_sum(x[i]);
  if constexpr (kWarps > 1) {
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) shared[threadIdx.x / kWarp][i] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = shared[0][i];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) x[i] += shared[warp][i];
    }
  }
}

// What a row's gradient needs of its sums.
struct RowFactors {
  float mean, scale, level, along;  // dx = scale · (w dy − level − along · (x − mean) · scale)
};

// kGroup threads to a row, kVectors accesses each; a warp, of which a block has four, or a block.
template <int kGroup>
inline constexpr int kGradThreads = kGroup == kWarp ? 4 * kWarp : kGroup;
// Threads of a multiprocessor: as many as registers allow.
template <int kVectors>
inline constexpr int kResidentThreads = kVectors == 1   ? 640
                                        : kVectors == 2 ? 512
                                                        : 384;
template <int kGroup, int kVectors>
inline constexpr int kGradBlocks =
    kResidentThreads<kVectors> / kGradThreads<kGroup> > 0 ? kResidentThreads<kVectors> / kGradThreads<kGroup>
                                                          : 1;

template <class T, int kVectors>
struct Row {
  Packed<T, kWide<T>> x[kVectors], dy[kVectors];
};

template <class T, int kGroup, int kVectors, bool kLayer>
class HeldGrad {
 public:
  static constexpr int N = kWide<T>, kWarps = kGroup / kWarp, kRows = kGradThreads<kGroup> / kGroup;

  __device__ __forceinline__ explicit HeldGrad(const GradArrays<T>& arrays)
      : a(arrays), lane(static_cast<int>(threadIdx.x) % kGroup) {}

  __device__ __forceinline__ int column(int v) const { return (v * kGroup + lane) * N; }
  __device__ __forceinline__ bool inside(int v) const { return column(v) < a.width; }

  __device__ __forceinline__ void read(Row<T, kVectors>& to, std::int64_t row) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!inside(v) || row >= a.rows) continue;
      to.x[v] = load_packed<N>(a.x + row * a.width + column(v));
      to.dy[v] = load_packed<N>(a.dy + row * a.width + column(v));
    }
  }

  __device__ __forceinline__ Floats<N> scaled(const Row<T, kVectors>& row, int v) const {
    Floats<N> d = unpack<N>(row.dy[v]);
    if (a.weight != nullptr) {
      const Floats<N> w = load<N>(a.weight + column(v));  // From the first cache.
#pragma unroll
      for (int i = 0; i < N; ++i) d.at[i] *= w.at[i];
    }
    return d;
  }

  // `shared`: two places of sums; `turn` says which is next.
  __device__ __forceinline__ RowFactors factors(const Row<T, kVectors>& row,
                                                float (*shared)[kWarps][kMostSums], int& turn) const {
    const float count = static_cast<float>(a.width);
    float mean = 0;
    if constexpr (kLayer) {
      float sums[1] = {0};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (!inside(v)) continue;
        const Floats<N> x = unpack<N>(row.x[v]);
#pragma unroll
        for (int i = 0; i < N; ++i) sums[0] += x.at[i];
      }
      group_sums<kWarps>(sums, shared[turn]);
      turn ^= 1;
      mean = sums[0] / count;
    }
    float sums[kLayer ? 3 : 2] = {};  // (x − mean)², w dy (x − mean), w dy
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!inside(v)) continue;
      const Floats<N> x = unpack<N>(row.x[v]), d = scaled(row, v);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float off = x.at[i] - mean;
        sums[0] = fmaf(off, off, sums[0]);
        sums[1] = fmaf(d.at[i], off, sums[1]);
        if constexpr (kLayer) sums[2] += d.at[i];
      }
    }
    group_sums<kWarps>(sums, shared[turn]);
    turn ^= 1;
    const float scale = rsqrtf(sums[0] / count + a.epsilon);
    float level = 0;
    if constexpr (kLayer) level = sums[2] / count;
    return {mean, scale, level, sums[1] * scale / count};
  }

  // Asked for before the sums, whose time it then takes to come.
  __device__ __forceinline__ void read_residual(Packed<T, N> (&to)[kVectors], std::int64_t row) const {
    if (a.residual == nullptr) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (inside(v)) to[v] = load_packed<N>(a.residual + row * a.width + column(v));
    }
  }

  __device__ __forceinline__ void write(const Row<T, kVectors>& row, const Packed<T, N> (&residual)[kVectors],
                                        const RowFactors& f, std::int64_t at) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!inside(v)) continue;
      const Floats<N> x = unpack<N>(row.x[v]), dy = unpack<N>(row.dy[v]), d = scaled(row, v);
      Floats<N> result = {};
      if (a.residual != nullptr) result = unpack<N>(residual[v]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normed = (x.at[i] - f.mean) * f.scale;
        dweight[v].at[i] = fmaf(dy.at[i], normed, dweight[v].at[i]);
        if constexpr (kLayer) dbias[v].at[i] += dy.at[i];
        result.at[i] = fmaf(f.scale, fmaf(-normed, f.along, d.at[i] - f.level), result.at[i]);
      }
      store(a.dx + at * a.width + column(v), result);
    }
  }

  // A block's warps one after the other into `sums`, then all of it to the block's partial row.
  __device__ __forceinline__ void finish(const Floats<N> (&mine)[kVectors], float* partials,
                                         float* sums) const {
    float* const to = partials + static_cast<std::int64_t>(blockIdx.x) * a.width;
    if constexpr (kRows == 1) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if (inside(v)) store(to + column(v), mine[v]);
      }
    } else {
      for (int turn = 0; turn < kRows; ++turn) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) / kGroup != turn) continue;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            float& sum = sums[(v * N + i) * kGroup + lane];
            sum = turn == 0 ? mine[v].at[i] : sum + mine[v].at[i];
          }
        }
      }
      __syncthreads();
      for (int c = static_cast<int>(threadIdx.x); c < a.width; c += kGradThreads<kGroup>) {
        const int vector = c / N;
        to[c] = sums[(vector / kGroup * N + c % N) * kGroup + vector % kGroup];
      }
    }
  }

  const GradArrays<T>& a;
  const int lane;
  Floats<N> dweight[kVectors] = {}, dbias[kVectors] = {};
};

template <class T, int kGroup, int kVectors, bool kLayer>
__global__ void __launch_bounds__(kGradThreads<kGroup>, (kGradBlocks<kGroup, kVectors>))
    norm_grad_held(const GradArrays<T> a) {
  using Held = HeldGrad<T, kGroup, kVectors, kLayer>;
  __shared__ float shared[2][Held::kWarps][kMostSums];
  __shared__ float sums[Held::kRows == 1 ? 1 : kVectors * Held::N * kGroup];
  Held held(a);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * Held::kRows;
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * Held::kRows + threadIdx.x / kGroup;
  int turn = 0;
  Row<T, kVectors> row, next;
  held.read(row, at);
  for (; at < a.rows; at += stride) {
    held.read(next, at + stride);
    Packed<T, Held::N> residual[kVectors];
    held.read_residual(residual, at);
    const RowFactors factors = held.factors(row, shared, turn);
    held.write(row, residual, factors, at);
    row = next;
  }
  if (a.dweight != nullptr) held.finish(held.dweight, a.dweight, sums);
  if (kLayer && a.dbias != nullptr) held.finish(held.dbias, a.dbias, sums);
}

// ---- Any width.

constexpr int kReadThreads = 256;

// dx, and (mean, scale) of each row for the columns' sums.
template <class T, int N>
__global__ void __launch_bounds__(kReadThreads)
    norm_grad_read(const GradArrays<T> a, bool layer, float2* statistics) {
  __shared__ float shared[kReadThreads / kWarp];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * a.width;
  const int first = static_cast<int>(threadIdx.x) * N;
  constexpr int kStride = kReadThreads * N, kWarps = kReadThreads / kWarp;
  const float count = static_cast<float>(a.width);
  float mean = 0;
  if (layer) {
    float sum = 0;
    for (int c = first; c < a.width; c += kStride) {
      const Floats<N> x = load<N>(a.x + begin + c);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += x.at[i];
    }
    mean = block_sum<kWarps>(sum, shared) / count;
  }
  const auto scaled = [&](int c) {
    Floats<N> d = load<N>(a.dy + begin + c);
    if (a.weight == nullptr) return d;
    const Floats<N> w = load<N>(a.weight + c);
#pragma unroll
    for (int i = 0; i < N; ++i) d.at[i] *= w.at[i];
    return d;
  };
  float squares = 0, dot = 0, all = 0;
  for (int c = first; c < a.width; c += kStride) {
    const Floats<N> x = load<N>(a.x + begin + c), d = scaled(c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float off = x.at[i] - mean;
      squares = fmaf(off, off, squares);
      dot = fmaf(d.at[i], off, dot);
      all += d.at[i];
    }
  }
  squares = block_sum<kWarps>(squares, shared);
  dot = block_sum<kWarps>(dot, shared);
  const float level = layer ? block_sum<kWarps>(all, shared) / count : 0.0f;
  const float scale = rsqrtf(squares / count + a.epsilon), along = dot * scale / count;
  if (threadIdx.x == 0) statistics[blockIdx.x] = make_float2(mean, scale);
  for (int c = first; c < a.width; c += kStride) {
    const Floats<N> x = load<N>(a.x + begin + c), d = scaled(c);
    Floats<N> result = {};
    if (a.residual != nullptr) result = load<N>(a.residual + begin + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float normed = (x.at[i] - mean) * scale;
      result.at[i] = fmaf(scale, fmaf(-normed, along, d.at[i] - level), result.at[i]);
    }
    store(a.dx + begin + c, result);
  }
}

template <class T>
struct WeightGradOp {
  const T *x, *dy;
  const float2* statistics;
  std::int64_t width;
  template <int N>
  __device__ __forceinline__ Floats<N> value(std::int64_t row, std::int64_t column) const {
    const float2 s = statistics[row];
    Floats<N> v = load<N>(x + row * width + column);
    const Floats<N> d = load<N>(dy + row * width + column);
#pragma unroll
    for (int i = 0; i < N; ++i) v.at[i] = d.at[i] * ((v.at[i] - s.x) * s.y);
    return v;
  }
};
template <class T>
struct BiasGradOp {
  const T* dy;
  std::int64_t width;
  template <int N>
  __device__ __forceinline__ Floats<N> value(std::int64_t row, std::int64_t column) const {
    return load<N>(dy + row * width + column);
  }
};

// ---- Which of them, and its memory.

struct Choice {
  int group = 0, vectors = 0;  // 0: any width.
  bool wide = false;
  std::int64_t blocks = 0;  // Of held rows.
};

template <int kGroup, int kVectors>
Choice held_choice(std::int64_t rows) {
  const std::int64_t blocks = divide_up(rows, kGradThreads<kGroup> / kGroup);
  const std::int64_t most = static_cast<std::int64_t>(multiprocessors()) * kGradBlocks<kGroup, kVectors>;
  return {kGroup, kVectors, true, blocks < most ? blocks : most};
}

Choice choose(const device::NormGrad& n) {
  const std::int64_t in_access = 16 / size_bytes(n.x.dtype);
  if (n.width % in_access != 0 ||
      !all_aligned({n.x.data, n.weight.data, n.dy.data, n.residual.data, n.dx.data})) {
    return {};
  }
  const std::int64_t vectors = n.width / in_access;
  if (vectors <= 32) return held_choice<32, 1>(n.rows);
  if (vectors <= 64) return held_choice<32, 2>(n.rows);
  if (vectors <= 96) return held_choice<32, 3>(n.rows);
  if (vectors <= 256) return held_choice<128, 2>(n.rows);
  if (vectors <= 512) return held_choice<256, 2>(n.rows);
  if (vectors <= 1024) return held_choice<512, 2>(n.rows);
  return {0, 0, true, 0};
}

std::int64_t statistics_bytes(const device::NormGrad& n) { return align_part(n.rows * 8); }

template <class T, int N>
void launch_read(const device::NormGrad& n, const GradArrays<T>& a, std::byte* workspace, Stream stream) {
  auto* const statistics = reinterpret_cast<float2*>(workspace);
  auto* const partials = typed<float>(workspace + statistics_bytes(n));
  norm_grad_read<T, N><<<static_cast<unsigned>(n.rows), kReadThreads, 0, stream>>>(
      a, n.kind == device::NormKind::kLayer, statistics);
  check_launch("norm_grad");
  if (n.dweight) {
    const WeightGradOp<T> op = {a.x, a.dy, statistics, n.width};
    sum_columns<N>(op, n.rows, n.width, partials, n.dweight, n.accumulate, "norm_grad of the weight", stream);
  }
  if (n.dbias) {
    const BiasGradOp<T> op = {a.dy, n.width};
    sum_columns<N>(op, n.rows, n.width, partials, n.dbias, n.accumulate, "norm_grad of the bias", stream);
  }
}

template <class T, int kGroup, int kVectors>
void launch_held(const GradArrays<T>& a, bool layer, std::int64_t blocks, Stream stream) {
  constexpr int kThreads = kGradThreads<kGroup>;
  const auto grid = static_cast<unsigned>(blocks);
  if (layer) {
    norm_grad_held<T, kGroup, kVectors, true><<<grid, kThreads, 0, stream>>>(a);
  } else {
    norm_grad_held<T, kGroup, kVectors, false><<<grid, kThreads, 0, stream>>>(a);
  }
  check_launch("norm_grad");
}

template <class T>
void launch_grad(const device::NormGrad& n, std::byte* workspace, Stream stream) {
  const Choice choice = choose(n);
  const bool layer = n.kind == device::NormKind::kLayer;
  GradArrays<T> a = {typed<const T>(n.x.data),
                     typed<const T>(n.weight.data),
                     typed<const T>(n.dy.data),
                     typed<const T>(n.residual.data),
                     typed<T>(n.dx.data),
                     nullptr,
                     nullptr,
                     n.rows,
                     static_cast<int>(n.width),
                     n.epsilon};
  if (choice.group == 0) {
    return choice.wide ? launch_read<T, kWide<T>>(n, a, workspace, stream)
                       : launch_read<T, 1>(n, a, workspace, stream);
  }
  // Without a mean the bias still has a gradient: sums of its own.
  const bool bias_apart = n.dbias && !layer;
  if (n.dweight) a.dweight = typed<float>(workspace);
  if (n.dbias && layer) a.dbias = typed<float>(workspace) + choice.blocks * n.width;
  switch (choice.group * 8 + choice.vectors) {
    case 32 * 8 + 1: launch_held<T, 32, 1>(a, layer, choice.blocks, stream); break;
    case 32 * 8 + 2: launch_held<T, 32, 2>(a, layer, choice.blocks, stream); break;
    case 32 * 8 + 3: launch_held<T, 32, 3>(a, layer, choice.blocks, stream); break;
    case 128 * 8 + 2: launch_held<T, 128, 2>(a, layer, choice.blocks, stream); break;
    case 256 * 8 + 2: launch_held<T, 256, 2>(a, layer, choice.blocks, stream); break;
    default: launch_held<T, 512, 2>(a, layer, choice.blocks, stream); break;
  }
  if (a.dweight != nullptr) sum_partials(a.dweight, choice.blocks, n.width, n.dweight, n.accumulate, stream);
  if (a.dbias != nullptr) sum_partials(a.dbias, choice.blocks, n.width, n.dbias, n.accumulate, stream);
  if (bias_apart) {
    const BiasGradOp<T> op = {a.dy, n.width};
    sum_columns<kWide<T>>(op, n.rows, n.width, typed<float>(workspace), n.dbias, n.accumulate,
                          "norm_grad of the bias", stream);
  }
}

}  // namespace

std::int64_t workspace_bytes(const device::NormGrad& n) {
  const Choice choice = choose(n);
  const auto in_access = static_cast<int>(choice.wide ? 16 / size_bytes(n.x.dtype) : 1);
  const std::int64_t apart = statistics_bytes(n) + column_chunks(n.rows, n.width, in_access) * n.width * 4;
  const std::int64_t held = 2 * choice.blocks * n.width * 4;
  return held > apart ? held : apart;
}

void launch(const device::NormGrad& n, const std::byte*, std::byte* workspace, Stream stream) {
  if (n.width == 0) return;
  if (n.rows == 0) {
    if (n.dweight) sum_partials(nullptr, 0, n.width, n.dweight, n.accumulate, stream);
    if (n.dbias) sum_partials(nullptr, 0, n.width, n.dbias, n.accumulate, stream);
    return;
  }
  with_type(n.x.dtype, "norm_grad",
            [&](auto tag) { launch_grad<typename decltype(tag)::Type>(n, workspace, stream); });
}

}  // namespace orrery::cuda

// Gradients of norms, in one pass over memory: a group of full warps holds a row, one 16-byte access of each
// array to a thread, while the next row is on its way. A block on each multiprocessor goes over rows and
// keeps their sums for the weight and the bias in registers. Instructions seem to limit it more than
// memory does, so that an element takes few. Rows that don't fit are left to kernels_norm_grad_read.cu.

#include "executor/cuda/kernels_norm_grad.cuh"

#include <algorithm>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_columns.cuh"

namespace orrery::cuda {
namespace {

// Warps of a block. A layer norm's sums are twice as many, and leave registers for half as many threads.
constexpr int held_warps(bool layer) { return layer ? 16 : 32; }
// Groups of a block; each has a barrier of its own, of which there are 15 beside __syncthreads().
constexpr int held_groups(int warps, bool layer) {
  return warps == 1 ? held_warps(layer) : std::min(held_warps(layer) / warps, 15);
}

// Two places for the sums of each warp, used in turns, so that one barrier is enough: who writes a place
// again has been through the barrier of the other.
struct alignas(16) Places {
  float2 of[2][held_warps(false)];
};

// Two sums over a group's warps, to all of its threads.
template <int kWarps>
__device__ __forceinline__ float2 group_sums(float first, float second, int turn, Places& places) {
  // Each half of the warp takes one of them.
  const bool upper = threadIdx.x % kWarp >= kWarp / 2;
  float sum = upper ? second : first;
  sum += __shfl_xor_sync(kAllLanes, upper ? first : second, kWarp / 2);
#pragma unroll
  for (int lane = kWarp / 4; lane > 0; lane /= 2) sum += __shfl_xor_sync(kAllLanes, sum, lane);
  if constexpr (kWarps == 1) {
    return {__shfl_sync(kAllLanes, sum, 0), __shfl_sync(kAllLanes, sum, kWarp / 2)};
  }
  float2* const of_block = places.of[turn];
  if (threadIdx.x % (kWarp / 2) == 0) {
    float2& place = of_block[threadIdx.x / kWarp];
    (upper ? place.y : place.x) = sum;
  }
  const unsigned group = threadIdx.x / (kWarps * kWarp);
  __barrier_sync_count(group + 1, kWarps * kWarp);
  const float2* const of_group = of_block + group * kWarps;
  float2 sums = of_group[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
    sums.x += of_group[warp].x;
    sums.y += of_group[warp].y;
  }
  return sums;
}

template <class T>
struct HeldRow {
  Packed<T, kWide<T>> x, dy;
};

template <class T, int kWarps, bool kLayer>
class HeldGrad {
 public:
  static constexpr int N = kWide<T>, kGroup = kWarps * kWarp, kGroups = held_groups(kWarps, kLayer);
  static constexpr int kThreads = kGroups * kGroup;
  static constexpr int kPlane = kThreads + kWarp / N;  // Of sums: no bank twice, for writing and for reading.
  static constexpr int kShared = N * kPlane;

  // `shared`: kShared floats.
  __device__ __forceinline__ HeldGrad(const GradArrays<T>& arrays, float* shared)
      : a(arrays),
        column(static_cast<int>(threadIdx.x) % kGroup * N),
        inside(column < arrays.width),
        weights(shared) {
    for (int c = static_cast<int>(threadIdx.x); c < kGroup * N; c += kThreads) {
      weights[c] = c >= a.width ? 0.0f : a.weight == nullptr ? 1.0f : to_float(a.weight[c]);
    }
    __syncthreads();
  }

  __device__ __forceinline__ HeldRow<T> read(std::int64_t row) const {
    HeldRow<T> held = {};
    if (!inside || row >= a.rows) return held;
    const std::int64_t from = row * a.width + column;
    held.x = load_packed<N>(a.x + from);
    held.dy = load_packed<N>(a.dy + from);
    return held;
  }

  // dx = scale · (w dy − level − along · normed) + residual, normed = (x − mean) · scale.
  __device__ __forceinline__ void work(HeldRow<T> held, std::int64_t row, Places& places) {
    const float share = 1.0f / static_cast<float>(a.width);
    Packed<T, N> more = {};  // Asked for before the sums, whose time it then takes to come.
    if (inside && a.residual != nullptr) more = load_packed<N>(a.residual + row * a.width + column);
    float mean = 0, level = 0;
    if constexpr (kLayer) {
      const Floats<N> x = unpack<N>(held.x), dy = unpack<N>(held.dy), weight = load<N>(weights + column);
      float of_x = 0, of_dy = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        of_x += x.at[i];
        of_dy = fmaf(dy.at[i], weight.at[i], of_dy);
      }
      const float2 means = group_sums<kWarps>(of_x, of_dy, turn ^= 1, places);
      mean = means.x * share;
      level = means.y * share;
    }
    const float2 sums = row_sums(held, mean, places);
    make_again(held.x);
    make_again(held.dy);
    const float scale = rsqrtf(fmaf(sums.x, share, a.epsilon));
    const float along = -scale * scale * scale * sums.y * share;  // Of x − mean.
    const Floats<N> x = unpack<N>(held.x), dy = unpack<N>(held.dy), residual = unpack<N>(more),
                    weight = load<N>(weights + column);
    Floats<N> dx;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float off = x.at[i] - mean;
      dweight.at[i] = fmaf(off * dy.at[i], scale, dweight.at[i]);
      float whole = dy.at[i] * weight.at[i];
      if constexpr (kLayer) {
        dbias.at[i] += dy.at[i];
        whole -= level;
      }
      dx.at[i] = fmaf(scale, whole, fmaf(along, off, residual.at[i]));
    }
    if (!inside) return;
#pragma unroll
    for (int i = 0; i < N; ++i) largest = fmaxf(largest, fabsf(dx.at[i]));
    store(a.dx + row * a.width + column, dx);
  }

  // Adds up a column's sums of all groups, in order, into the block's row of `partials`, if any.
  __device__ __forceinline__ void finish(const Floats<N>& mine, float* partials) const {
    if (partials == nullptr) return;
    float* const sums = weights;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i * kPlane + threadIdx.x] = mine.at[i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < a.width; c += kThreads) {
      const float* const from = sums + c % N * kPlane + c / N;
      float sum = from[0];
#pragma unroll
      for (int group = 1; group < kGroups; ++group) sum += from[group * kGroup];
      partials[static_cast<std::int64_t>(blockIdx.x) * a.width + c] = sum;
    }
  }

  Floats<N> dweight = {}, dbias = {};
  float largest = 0;  // Of dx.

 private:
  // (x − mean)², w dy (x − mean)
  __device__ __forceinline__ float2 row_sums(const HeldRow<T>& held, float mean, Places& places) {
    const Floats<N> x = unpack<N>(held.x), dy = unpack<N>(held.dy), weight = load<N>(weights + column);
    float squares = 0, dot = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float off = kLayer && !inside ? 0 : x.at[i] - mean;
      squares = fmaf(off, off, squares);
      dot = fmaf(off * dy.at[i], weight.at[i], dot);
    }
    return group_sums<kWarps>(squares, dot, turn ^= 1, places);
  }

  const GradArrays<T>& a;
  const int column;
  const bool inside;
  float* const weights;  // By column; in the end sums for them.
  int turn = 0;          // Of the places.
};

template <class T, int kWarps, bool kLayer>
__global__ void __launch_bounds__(held_warps(kLayer) * kWarp, 1)
    norm_grad_held(const GradArrays<T> a, float* dweight, float* dbias) {
  using Held = HeldGrad<T, kWarps, kLayer>;
  __shared__ Places places;
  __shared__ alignas(16) float shared[Held::kShared];
  Held held(a, shared);
  // Groups of one block are gridDim.x rows apart: the last round is everyone's.
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * Held::kGroups;
  std::int64_t row = static_cast<std::int64_t>(threadIdx.x / Held::kGroup) * gridDim.x + blockIdx.x;
  HeldRow<T> now = held.read(row);
  for (; row < a.rows; row += stride) {
    const HeldRow<T> next = held.read(row + stride);
    held.work(now, row, places);
    now = next;
  }
  held.finish(held.dweight, dweight);
  if constexpr (kLayer) held.finish(held.dbias, dbias);
  if (a.largest != nullptr) raise_largest<T, Held::kThreads / kWarp>(held.largest, shared, a.largest);
}

template <class T, int kWarps, bool kLayer>
void launch_kind(const device::NormGrad& n, std::int64_t blocks, std::byte* workspace, Stream stream) {
  float* const dweight = n.dweight ? typed<float>(workspace) : nullptr;
  float* const dbias = n.dbias ? typed<float>(workspace) + blocks * n.width : nullptr;
  norm_grad_held<T, kWarps, kLayer>
      <<<static_cast<unsigned>(blocks), HeldGrad<T, kWarps, kLayer>::kThreads, 0, stream>>>(grad_arrays<T>(n),
                                                                                            dweight, dbias);
  check_launch("norm_grad");
  if (n.dweight) sum_partials(dweight, blocks, n.width, n.dweight, n.accumulate, stream);
  if (n.dbias) sum_partials(dbias, blocks, n.width, n.dbias, n.accumulate, stream);
}

bool is_layer(const device::NormGrad& n) { return n.kind == device::NormKind::kLayer; }

template <class T, int kWarps>
void launch_held(const device::NormGrad& n, std::int64_t blocks, std::byte* workspace, Stream stream) {
  if constexpr (kWarps <= held_warps(true)) {
    if (is_layer(n)) return launch_kind<T, kWarps, true>(n, blocks, workspace, stream);
  }
  launch_kind<T, kWarps, false>(n, blocks, workspace, stream);
}

int elements_of_access(const device::NormGrad& n) {
  const auto wide = static_cast<int>(16 / size_bytes(n.x.dtype));
  const bool aligned = all_aligned({n.x.data, n.weight.data, n.dy.data, n.residual.data, n.dx.data});
  return aligned && n.width % wide == 0 ? wide : 1;
}

// Warps that hold a row; 0: it isn't held.
int warps_of(const device::NormGrad& n) {
  const int in_access = elements_of_access(n);
  const bool bias_alone = n.dbias && n.kind == device::NormKind::kRms;  // Of no use to hold.
  if (in_access == 1 || bias_alone) return 0;
  for (const int warps : {1, 2, 3, 4, 6, 8, 12, 16, 32}) {
    if (n.width <= std::int64_t{warps} * kWarp * in_access)
      return warps <= held_warps(is_layer(n)) ? warps : 0;
  }
  return 0;
}

std::int64_t held_blocks(const device::NormGrad& n, int warps) {
  return std::min<std::int64_t>(divide_up(n.rows, held_groups(warps, is_layer(n))), multiprocessors());
}

template <class T>
void launch_grad(const device::NormGrad& n, std::byte* workspace, Stream stream) {
  const int warps = warps_of(n);
  if (warps == 0) return launch_read(n, elements_of_access(n), workspace, stream);
  const std::int64_t blocks = held_blocks(n, warps);
  switch (warps) {
    case 1: return launch_held<T, 1>(n, blocks, workspace, stream);
    case 2: return launch_held<T, 2>(n, blocks, workspace, stream);
    case 3: return launch_held<T, 3>(n, blocks, workspace, stream);
    case 4: return launch_held<T, 4>(n, blocks, workspace, stream);
    case 6: return launch_held<T, 6>(n, blocks, workspace, stream);
    case 8: return launch_held<T, 8>(n, blocks, workspace, stream);
    case 12: return launch_held<T, 12>(n, blocks, workspace, stream);
    case 16: return launch_held<T, 16>(n, blocks, workspace, stream);
    default: return launch_held<T, 32>(n, blocks, workspace, stream);
  }
}

}  // namespace

std::int64_t workspace_bytes(const device::NormGrad& n) {
  const int warps = warps_of(n);
  if (warps == 0) return read_workspace_bytes(n, elements_of_access(n));
  return 2 * held_blocks(n, warps) * n.width * 4;
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

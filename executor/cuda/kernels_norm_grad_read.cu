// Gradients of norms whose rows are too wide to be held, or not aligned: a pass for dx and the rows'
// statistics, then one for each of the columns' sums.

#include "executor/cuda/kernels_columns.cuh"
#include "executor/cuda/kernels_norm_grad.cuh"

namespace orrery::cuda {
namespace {

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
  float most = 0;
  for (int c = first; c < a.width; c += kStride) {
    const Floats<N> x = load<N>(a.x + begin + c), d = scaled(c);
    Floats<N> result = {};
    if (a.residual != nullptr) result = load<N>(a.residual + begin + c);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float normed = (x.at[i] - mean) * scale;
      result.at[i] = fmaf(scale, fmaf(-normed, along, d.at[i] - level), result.at[i]);
      most = fmaxf(most, fabsf(result.at[i]));
    }
    store(a.dx + begin + c, result);
  }
  if (a.largest != nullptr) raise_largest<T, kWarps>(most, shared, a.largest);
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

std::int64_t statistics_bytes(const device::NormGrad& n) { return align_part(n.rows * 8); }

template <class T, int N>
void launch_passes(const device::NormGrad& n, std::byte* workspace, Stream stream) {
  const GradArrays<T> a = grad_arrays<T>(n);
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

}  // namespace

std::int64_t read_workspace_bytes(const device::NormGrad& n, int in_access) {
  return statistics_bytes(n) + column_chunks(n.rows, n.width, in_access) * n.width * 4;
}

void launch_read(const device::NormGrad& n, int in_access, std::byte* workspace, Stream stream) {
  with_type(n.x.dtype, "norm_grad", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (in_access > 1) {
      launch_passes<T, kWide<T>>(n, workspace, stream);
    } else {
      launch_passes<T, 1>(n, workspace, stream);
    }
  });
}

}  // namespace orrery::cuda

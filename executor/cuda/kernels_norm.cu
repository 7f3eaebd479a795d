// Norms, forward. A row is held in registers by a warp or by a block; rows that are too wide for that, or not
// aligned, are read again from the cache.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

template <class T>
struct NormArrays {
  const T *x, *residual;
  T* sum;
  const T *weight, *bias;
  T* y;
  float* largest;
  std::int64_t rows;
  int width;
  float epsilon;
  bool layer;
};

// (x − mean) · scale · weight + bias of N columns; returns the largest of them.
template <int N, class T>
__device__ __forceinline__ float write_normed(const NormArrays<T>& a, Floats<N> x, float mean, float scale,
                                              std::int64_t row, int column) {
#pragma unroll
  for (int i = 0; i < N; ++i) x.at[i] = (x.at[i] - mean) * scale;
  if (a.weight != nullptr) {
    const Floats<N> w = load<N>(a.weight + column);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] *= w.at[i];
  }
  if (a.bias != nullptr) {
    const Floats<N> b = load<N>(a.bias + column);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] += b.at[i];
  }
  store(a.y + row * a.width + column, x);
  float most = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) most = fmaxf(most, fabsf(x.at[i]));
  return most;
}

template <int N, class T>
__device__ __forceinline__ Packed<T, N> added(const Packed<T, N>& x, const Packed<T, N>& y) {
  Floats<N> sum = unpack<N>(x);
  const Floats<N> other = unpack<N>(y);
#pragma unroll
  for (int i = 0; i < N; ++i) sum.at[i] += other.at[i];
  return pack<T, N>(sum);
}

// kGroup threads hold a row, kVectors accesses of 16 bytes each: a warp, of which a block has four, or a
// block.
template <int kGroup>
inline constexpr int kNormThreads = kGroup == kWarp ? 4 * kWarp : kGroup;

template <class T, int kGroup, int kVectors>
__global__ void __launch_bounds__(kNormThreads<kGroup>) norm_held(const NormArrays<T> a) {
  constexpr int N = kWide<T>, kRows = kNormThreads<kGroup> / kGroup;
  __shared__ float shared[kGroup / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kGroup;
  if (row >= a.rows) return;  // A whole warp, where a warp has a row; never where a block has one.
  const auto column = [&](int v) { return (v * kGroup + lane) * N; };
  Packed<T, N> held[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (column(v) < a.width) held[v] = load_packed<N>(a.x + row * a.width + column(v));
  }
  if (a.residual != nullptr) {
    Packed<T, N> other[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) < a.width) other[v] = load_packed<N>(a.residual + row * a.width + column(v));
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) >= a.width) continue;
      held[v] = added<N, T>(held[v], other[v]);
      store_packed<N>(a.sum + row * a.width + column(v), held[v]);
    }
  }
  float mean = 0;
  if (a.layer) {
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (column(v) >= a.width) continue;
      const Floats<N> x = unpack<N>(held[v]);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += x.at[i];
    }
    mean = block_sum<kGroup / kWarp>(sum, shared) / static_cast<float>(a.width);
  }
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (column(v) >= a.width) continue;
    const Floats<N> x = unpack<N>(held[v]);
#pragma unroll
    for (int i = 0; i < N; ++i) squares = fmaf(x.at[i] - mean, x.at[i] - mean, squares);
  }
  squares = block_sum<kGroup / kWarp>(squares, shared);
  const float scale = rsqrtf(squares / static_cast<float>(a.width) + a.epsilon);
  float most = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (column(v) < a.width)
      most = fmaxf(most, write_normed<N>(a, unpack<N>(held[v]), mean, scale, row, column(v)));
  }
  if (a.largest != nullptr) raise_largest<T, kGroup / kWarp>(most, shared, a.largest);
}

// Any width: a block goes through its row for each of the sums and for the result. The sum with the residual
// is read back from where it was written, by the thread that wrote it.
constexpr int kReadThreads = 256;

template <class T, int N>
__global__ void __launch_bounds__(kReadThreads) norm_read(const NormArrays<T> a) {
  __shared__ float shared[kReadThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  const int first = static_cast<int>(threadIdx.x) * N;
  constexpr int kStride = kReadThreads * N;
  const T* x = a.x + row * a.width;
  if (a.residual != nullptr) {
    T* const sum = a.sum + row * a.width;
    for (int c = first; c < a.width; c += kStride) {
      store_packed<N>(sum + c,
                      added<N, T>(load_packed<N>(x + c), load_packed<N>(a.residual + row * a.width + c)));
    }
    x = sum;
  }
  float mean = 0;
  if (a.layer) {
    float sum = 0;
    for (int c = first; c < a.width; c += kStride) {
      const Floats<N> v = load<N>(x + c);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += v.at[i];
    }
    mean = block_sum<kReadThreads / kWarp>(sum, shared) / static_cast<float>(a.width);
  }
  float squares = 0;
  for (int c = first; c < a.width; c += kStride) {
    const Floats<N> v = load<N>(x + c);
#pragma unroll
    for (int i = 0; i < N; ++i) squares = fmaf(v.at[i] - mean, v.at[i] - mean, squares);
  }
  squares = block_sum<kReadThreads / kWarp>(squares, shared);
  const float scale = rsqrtf(squares / static_cast<float>(a.width) + a.epsilon);
  float most = 0;
  for (int c = first; c < a.width; c += kStride)
    most = fmaxf(most, write_normed<N>(a, load<N>(x + c), mean, scale, row, c));
  if (a.largest != nullptr) raise_largest<T, kReadThreads / kWarp>(most, shared, a.largest);
}

template <class T, int kGroup, int kVectors>
void launch_held(const NormArrays<T>& a, Stream stream) {
  constexpr int kThreads = kNormThreads<kGroup>;
  const auto blocks = static_cast<unsigned>(divide_up(a.rows, kThreads / kGroup));
  norm_held<T, kGroup, kVectors><<<blocks, kThreads, 0, stream>>>(a);
}

template <class T>
void launch_norm(const NormArrays<T>& a, Stream stream) {
  constexpr int N = kWide<T>;
  const auto blocks = static_cast<unsigned>(a.rows);
  const bool wide = a.width % N == 0 && all_aligned({a.x, a.residual, a.sum, a.weight, a.bias, a.y});
  const int vectors = a.width / N;
  if (!wide) {
    norm_read<T, 1><<<blocks, kReadThreads, 0, stream>>>(a);
  } else if (vectors <= 32) {
    launch_held<T, 32, 1>(a, stream);
  } else if (vectors <= 64) {
    launch_held<T, 32, 2>(a, stream);
  } else if (vectors <= 128) {
    launch_held<T, 32, 4>(a, stream);
  } else if (vectors <= 256) {
    launch_held<T, 128, 2>(a, stream);
  } else if (vectors <= 512) {
    launch_held<T, 128, 4>(a, stream);
  } else if (vectors <= 1024) {
    launch_held<T, 256, 4>(a, stream);
  } else if (vectors <= 2048) {
    launch_held<T, 512, 4>(a, stream);
  } else if (vectors <= 4096) {
    launch_held<T, 1024, 4>(a, stream);
  } else {
    norm_read<T, N><<<blocks, kReadThreads, 0, stream>>>(a);
  }
  check_launch("norm");
}

}  // namespace

void launch(const device::Norm& n, const std::byte*, std::byte*, Stream stream) {
  if (n.rows == 0 || n.width == 0) return;
  if (n.residual && !n.sum) refuse("norm", "a residual needs a place for the sum");
  with_type(n.x.dtype, "norm", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    launch_norm<T>({typed<const T>(n.x.data), typed<const T>(n.residual.data), typed<T>(n.sum.data),
                    typed<const T>(n.weight.data), typed<const T>(n.bias.data), typed<T>(n.y.data), n.largest,
                    n.rows, static_cast<int>(n.width), n.epsilon, n.kind == device::NormKind::kLayer},
                   stream);
  });
}

}  // namespace orrery::cuda

// Cross-entropy over rows of logits, a block for each. Rows of any length are read by 16 bytes: what lies
// before the first aligned address and after the last is read element by element.

#include <cmath>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kLossThreads = 256, kLossWarps = kLossThreads / kWarp;

// Elements of a row before its first 16-byte access, and where its last one ends.
struct Span {
  std::int64_t head, end;
};
template <class T>
__device__ __forceinline__ Span wide_part(const T* row, std::int64_t count) {
  constexpr std::int64_t N = kWide<T>;
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
  std::int64_t head = (N - past) % N;
  if (head > count) head = count;
  return {head, head + (count - head) / N * N};
}

// Σ 2^(x log2 e − top) of what was seen, `top` being the largest x log2 e. The product with log2 e and the
// subtraction are one operation, so that rounding `top` costs nothing: it is added again as it is.
struct Exponentials {
  float top = -1e30f;  // Below every logit, and no −∞, whose difference with itself is no number.
  float sum = 0;

  template <int N>
  __device__ __forceinline__ void add(const Floats<N>& x) {
    float largest = x.at[0];
#pragma unroll
    for (int i = 1; i < N; ++i) largest = fmaxf(largest, x.at[i]);
    const float next = fmaxf(top, largest * kLog2E);
    sum *= exp2_fast(top - next);
    top = next;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exp2_fast(fmaf(x.at[i], kLog2E, -top));
  }
};

template <class T>
__device__ __forceinline__ Exponentials exponentials_of(const T* row, std::int64_t real) {
  constexpr int N = kWide<T>, kUnroll = 4;
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kLossThreads) * N;
  Exponentials seen;
  const Span span = wide_part(row, real);
  for (std::int64_t i = threadIdx.x; i < span.head; i += kLossThreads) seen.add(load<1>(row + i));
  std::int64_t i = span.head + static_cast<std::int64_t>(threadIdx.x) * N;
  for (; i + (kUnroll - 1) * kStride < span.end; i += kUnroll * kStride) {
    Packed<T, N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) x[u] = load_packed<N>(row + i + u * kStride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) seen.add(unpack<N>(x[u]));
  }
  for (; i < span.end; i += kStride) seen.add(load<N>(row + i));
  for (i = span.end + threadIdx.x; i < real; i += kLossThreads) seen.add(load<1>(row + i));
  return seen;
}

struct Labels {
  const void* data;
  bool int64;
  std::int64_t first_entry;
  // The local entry, which may lie outside of the row.
  __device__ __forceinline__ std::int64_t of(std::int64_t token) const {
    return whole_at(data, int64, token) - first_entry;
  }
};

template <class T>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(const T* logits, Labels labels, std::int64_t vocab, std::int64_t real, float* lse,
                         double* losses) {
  __shared__ float shared[kLossWarps];
  const std::int64_t token = blockIdx.x;
  const T* const row = logits + token * vocab;
  const Exponentials seen = exponentials_of(row, real);
  const float top = block_max<kLossWarps>(seen.top, shared);
  const float sum = block_sum<kLossWarps>(seen.sum * exp2_fast(seen.top - top), shared);
  if (threadIdx.x != 0) return;
  // Σ e^(x) = 2^top · sum.
  const double log_sum = static_cast<double>(top) * 0.69314718055994531 + log(static_cast<double>(sum));
  const float rounded_sum = static_cast<float>(log_sum);
  lse[token] = rounded_sum;
  const std::int64_t label = labels.of(token);
  const double of_label = label >= 0 && label < vocab ? static_cast<double>(to_float(row[label])) : 0.0;
  losses[token] = static_cast<double>(rounded_sum) - of_label;
}

constexpr int kMeanThreads = 1024;

template <class L>
__global__ void __launch_bounds__(kMeanThreads)
    loss_mean(const double* losses, std::int64_t tokens, double tokens_of_mean, L* loss) {
  __shared__ double shared[kMeanThreads / kWarp];
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < tokens; i += kMeanThreads) sum += losses[i];
  sum = block_sum<kMeanThreads / kWarp>(sum, shared);
  if (threadIdx.x == 0) *loss = from_float<L>(static_cast<float>(sum / tokens_of_mean));
}

// weight · (e^(x − lse) − [it is the label]); 0 for padding.
template <class T>
struct GradOfRow {
  const T* from;
  T* to;
  float lse, weight;
  std::int64_t label, real;

  __device__ __forceinline__ float value(float x, std::int64_t entry) const {
    const float p = weight * exp_fast(x - lse);
    return entry < real ? (entry == label ? p - weight : p) : (entry == label ? -weight : 0.0f);
  }
  template <int N>
  __device__ __forceinline__ void write(std::int64_t entry, const Packed<T, N>& logits) const {
    Floats<N> x = unpack<N>(logits);
    if (entry + N <= real && (label < entry || label >= entry + N)) {  // Nearly always.
#pragma unroll
      for (int i = 0; i < N; ++i) x.at[i] = weight * exp_fast(x.at[i] - lse);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) x.at[i] = value(x.at[i], entry + i);
    }
    store(to + entry, x);
  }
};

// `wide`: logits and their gradient lie equally within 16 bytes.
template <class T>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_grad_kernel(const T* logits, T* dlogits, Labels labels, std::int64_t vocab,
                              std::int64_t real, const float* lse, float weight, bool wide) {
  constexpr int N = kWide<T>, kUnroll = 2;
  constexpr std::int64_t kStride = static_cast<std::int64_t>(kLossThreads) * N;
  const std::int64_t token = blockIdx.x;
  const GradOfRow<T> row = {
      logits + token * vocab, dlogits + token * vocab, lse[token], weight, labels.of(token), real};
  Span span = wide_part(row.from, vocab);
  if (!wide) span = {vocab, vocab};
  for (std::int64_t i = threadIdx.x; i < span.head; i += kLossThreads)
    row.template write<1>(i, load_packed<1>(row.from + i));
  std::int64_t i = span.head + static_cast<std::int64_t>(threadIdx.x) * N;
  for (; i + (kUnroll - 1) * kStride < span.end; i += kUnroll * kStride) {
    Packed<T, N> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) x[u] = load_packed<N>(row.from + i + u * kStride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) row.template write<N>(i + u * kStride, x[u]);
  }
  for (; i < span.end; i += kStride) row.template write<N>(i, load_packed<N>(row.from + i));
  for (i = span.end + threadIdx.x; i < vocab; i += kLossThreads)
    row.template write<1>(i, load_packed<1>(row.from + i));
}

Labels labels_of(const device::Array& labels, std::int64_t first_entry) {
  if (labels.dtype != DType::kInt64 && labels.dtype != DType::kInt32)
    refuse_type("cross_entropy's labels", labels.dtype);
  return {labels.data, labels.dtype == DType::kInt64, first_entry};
}

std::int64_t real_of(std::int64_t real, std::int64_t vocab) {
  return real < 0 ? 0 : (real < vocab ? real : vocab);
}

}  // namespace

std::int64_t workspace_bytes(const device::CrossEntropy& c) { return c.tokens * 8; }

void launch(const device::CrossEntropy& c, const std::byte*, std::byte* workspace, Stream stream) {
  auto* const losses = typed<double>(workspace);
  if (c.tokens > 0) {
    const Labels labels = labels_of(c.labels, c.first_entry);
    with_type(c.logits.dtype, "cross_entropy", [&](auto tag) {
      using T = typename decltype(tag)::Type;
      cross_entropy_kernel<T><<<static_cast<unsigned>(c.tokens), kLossThreads, 0, stream>>>(
          typed<const T>(c.logits.data), labels, c.vocab, real_of(c.real, c.vocab), c.lse, losses);
    });
    check_launch("cross_entropy");
  }
  with_type(c.loss.dtype, "cross_entropy", [&](auto tag) {
    using L = typename decltype(tag)::Type;
    loss_mean<L><<<1, kMeanThreads, 0, stream>>>(losses, c.tokens, c.tokens_of_mean, typed<L>(c.loss.data));
  });
  check_launch("cross_entropy's mean");
}

void launch(const device::CrossEntropyGrad& c, const std::byte*, std::byte*, Stream stream) {
  if (c.tokens == 0 || c.vocab == 0) return;
  const Labels labels = labels_of(c.labels, c.first_entry);
  const auto weight = static_cast<float>(1 / c.tokens_of_mean);
  const bool wide = reinterpret_cast<std::uintptr_t>(c.logits.data) % 16 ==
                    reinterpret_cast<std::uintptr_t>(c.dlogits.data) % 16;
  with_type(c.logits.dtype, "cross_entropy_grad", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    cross_entropy_grad_kernel<T><<<static_cast<unsigned>(c.tokens), kLossThreads, 0, stream>>>(
        typed<const T>(c.logits.data), typed<T>(c.dlogits.data), labels, c.vocab, real_of(c.real, c.vocab),
        c.lse, weight, wide);
  });
  check_launch("cross_entropy_grad");
}

}  // namespace orrery::cuda

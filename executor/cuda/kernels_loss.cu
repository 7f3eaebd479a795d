// Cross-entropy over rows of logits, a block for each. Rows of any length are read by 16 bytes: what lies
// before the first aligned address and after the last is read element by element.

#include <algorithm>
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

// ln Σ e^x of the block's row, from what each thread has seen of it.
template <int kWarps>
__device__ __forceinline__ float log_sum(const Exponentials& seen, float* shared) {
  const float top = block_max<kWarps>(seen.top, shared);
  const float sum = block_sum<kWarps>(seen.sum * exp2_fast(seen.top - top), shared);
  // Σ e^(x) = 2^top · sum.
  return static_cast<float>(static_cast<double>(top) * 0.69314718055994531 + log(static_cast<double>(sum)));
}

// 0 where another rank has it.
template <class T>
__device__ __forceinline__ double logit_of(const T* row, std::int64_t label, std::int64_t vocab) {
  return label >= 0 && label < vocab ? static_cast<double>(to_float(row[label])) : 0.0;
}

template <class T>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_kernel(const T* logits, Labels labels, std::int64_t vocab, std::int64_t real, float* lse,
                         double* losses) {
  __shared__ float shared[kLossWarps];
  const std::int64_t token = blockIdx.x;
  const T* const row = logits + token * vocab;
  const float of_row = log_sum<kLossWarps>(exponentials_of(row, real), shared);
  if (threadIdx.x != 0) return;
  lse[token] = of_row;
  losses[token] = static_cast<double>(of_row) - logit_of(row, labels.of(token), vocab);
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

// weight · (e^(x − lse) − [it is the label]); 0 for padding. e^(x − lse) · weight is one power of two.
template <class T>
class GradOfRow {
 public:
  __device__ __forceinline__ GradOfRow(T* row, float lse, float weight, std::int64_t label, int vocab,
                                       int real)
      : to_(row),
        exponent_(fmaf(-lse, kLog2E, log2f(weight))),
        weight_(weight),
        label_(label >= 0 && label < vocab ? static_cast<int>(label) : -1),
        real_(real) {}

  template <int N>
  __device__ __forceinline__ void write(int entry, const Packed<T, N>& logits) const {
    Floats<N> x = unpack<N>(logits);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] = exp2_fast(fmaf(x.at[i], kLog2E, exponent_));
    const int label = label_ - entry;
    if (entry + N > real_ || (label >= 0 && label < N)) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (entry + i >= real_) x.at[i] = 0;
        if (i == label) x.at[i] -= weight_;
      }
    }
    store(to_ + entry, x);
  }

 private:
  T* to_;
  float exponent_, weight_;
  int label_, real_;
};

// Blocks go over memory in its order, some of a row each: as a copy does it. N > 1: whole vectors, which
// lie at multiples of 16 bytes.
constexpr int kGradUnroll = 4;

template <class T, int N>
__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_grad_kernel(const T* logits, T* dlogits, Labels labels, int vocab, int real,
                              const float* lse, float weight, unsigned blocks_of_row) {
  constexpr int kStride = kLossThreads * N;
  const std::int64_t token = blockIdx.x / blocks_of_row;
  const T* const row = logits + token * vocab;
  const int first = static_cast<int>(blockIdx.x % blocks_of_row) * (kGradUnroll * kStride) +
                    static_cast<int>(threadIdx.x) * N;
  Packed<T, N> x[kGradUnroll];
#pragma unroll
  for (int u = 0; u < kGradUnroll; ++u) {
    if (first + u * kStride < vocab) x[u] = load_packed<N>(row + first + u * kStride);
  }
  const GradOfRow<T> grad(dlogits + token * vocab, lse[token], weight, labels.of(token), vocab, real);
#pragma unroll
  for (int u = 0; u < kGradUnroll; ++u) {
    if (first + u * kStride < vocab) grad.template write<N>(first + u * kStride, x[u]);
  }
}

// ---- Both at once: a row stays in shared memory, as 16-byte vectors that the thread which has read one
// reads again. Where a multiprocessor has no room for two rows, one kernel after the other is quicker.

// What a multiprocessor has for its blocks, less what each needs beside.
constexpr int kMostShared = 222 * 1024;

// What of a vector of logits counts: all, or what lies before `real`.
template <int N>
__device__ __forceinline__ void add_real(Exponentials& seen, const Floats<N>& x, int entry, int real) {
  if (entry + N <= real) return seen.add(x);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (entry + i < real) seen.add(Floats<1>{{x.at[i]}});
  }
}

// REQUIRES: whole vectors, which lie at multiples of 16 bytes, as the gradient's do.
template <class T, int kThreads, int kBlocks, int kUnroll>
__global__ void __launch_bounds__(kThreads, kBlocks)
    cross_entropy_both_kernel(const T* logits, T* dlogits, Labels labels, int vocab, int real, float weight,
                              float* lse, double* losses) {
  constexpr int N = kWide<T>;
  using Vector = Packed<T, N>;
  extern __shared__ std::byte memory[];
  __shared__ float shared[kThreads / kWarp];
  auto* const vectors = reinterpret_cast<Vector*>(memory);
  const std::int64_t token = blockIdx.x;
  const T* const row = logits + token * vocab;
  const std::int64_t label = labels.of(token);
  const int count = vocab / N, thread = static_cast<int>(threadIdx.x);
  const double of_label = thread == 0 ? logit_of(row, label, vocab) : 0;  // Before anybody writes over it.

  Exponentials seen;
  const auto see = [&](int i, const Vector& x) {
    vectors[i] = x;
    add_real<N>(seen, unpack<N>(x), i * N, real);
  };
  int i = thread;
  for (; i + (kUnroll - 1) * kThreads < count; i += kUnroll * kThreads) {
    Vector x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) x[u] = load_packed<N>(row + (i + u * kThreads) * N);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) see(i + u * kThreads, x[u]);
  }
  for (; i < count; i += kThreads) see(i, load_packed<N>(row + i * N));

  const float of_row = log_sum<kThreads / kWarp>(seen, shared);
  if (thread == 0) {
    lse[token] = of_row;
    losses[token] = static_cast<double>(of_row) - of_label;
  }
  const GradOfRow<T> grad(dlogits + token * vocab, of_row, weight, label, vocab, real);
#pragma unroll kUnroll
  for (i = thread; i < count; i += kThreads) grad.template write<N>(i * N, vectors[i]);
}

constexpr std::int64_t kMostEntries = std::int64_t{1} << 30;

Labels labels_of(const device::Array& labels, std::int64_t first_entry) {
  if (labels.dtype != DType::kInt64 && labels.dtype != DType::kInt32)
    refuse_type("cross_entropy's labels", labels.dtype);
  return {labels.data, labels.dtype == DType::kInt64, first_entry};
}

std::int64_t real_of(std::int64_t real, std::int64_t vocab) {
  return real < 0 ? 0 : (real < vocab ? real : vocab);
}

std::int64_t row_bytes(const device::CrossEntropy& c) { return c.vocab * size_bytes(c.logits.dtype); }

// Whether one kernel does both; else one does after the other.
bool takes_rows(const device::CrossEntropy& c) {
  const std::int64_t vector = 16 / size_bytes(c.logits.dtype);
  return c.dlogits && c.vocab % vector == 0 && row_bytes(c) <= kMostShared / 2 &&
         all_aligned({c.logits.data, c.dlogits.data});
}

template <class T, int kThreads, int kBlocks, int kUnroll>
void launch_rows(const device::CrossEntropy& c, double* losses, Stream stream) {
  const auto kernel = cross_entropy_both_kernel<T, kThreads, kBlocks, kUnroll>;
  const auto vocab = static_cast<int>(c.vocab);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  kernel<<<static_cast<unsigned>(c.tokens), kThreads, static_cast<std::size_t>(row_bytes(c)), stream>>>(
      typed<const T>(c.logits.data), typed<T>(c.dlogits.data), labels_of(c.labels, c.first_entry), vocab,
      static_cast<int>(real_of(c.real, c.vocab)), static_cast<float>(1 / c.tokens_of_mean), c.lse, losses);
}

// As many rows at a time as shared memory has room for: one reads while another writes.
void launch_both(const device::CrossEntropy& c, double* losses, Stream stream) {
  with_type(c.logits.dtype, "cross_entropy", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if (row_bytes(c) <= kMostShared / 3) {
      launch_rows<T, 512, 3, 4>(c, losses, stream);
    } else {
      launch_rows<T, 1024, 2, 2>(c, losses, stream);
    }
  });
  check_launch("cross_entropy with its gradient");
}

void launch_loss(const device::CrossEntropy& c, double* losses, Stream stream) {
  const Labels labels = labels_of(c.labels, c.first_entry);
  with_type(c.logits.dtype, "cross_entropy", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    cross_entropy_kernel<T><<<static_cast<unsigned>(c.tokens), kLossThreads, 0, stream>>>(
        typed<const T>(c.logits.data), labels, c.vocab, real_of(c.real, c.vocab), c.lse, losses);
  });
  check_launch("cross_entropy");
}

}  // namespace

std::int64_t workspace_bytes(const device::CrossEntropy& c) { return c.tokens * 8; }

void launch(const device::CrossEntropy& c, const std::byte*, std::byte* workspace, Stream stream) {
  auto* const losses = typed<double>(workspace);
  const bool both = takes_rows(c);
  if (c.tokens > 0) both ? launch_both(c, losses, stream) : launch_loss(c, losses, stream);
  with_type(c.loss.dtype, "cross_entropy", [&](auto tag) {
    using L = typename decltype(tag)::Type;
    loss_mean<L><<<1, kMeanThreads, 0, stream>>>(losses, c.tokens, c.tokens_of_mean, typed<L>(c.loss.data));
  });
  check_launch("cross_entropy's mean");
  if (!c.dlogits || both) return;
  launch(device::CrossEntropyGrad{c.tokens, c.vocab, c.real, c.first_entry, c.tokens_of_mean, c.logits,
                                  c.labels, c.lse, c.dlogits},
         nullptr, workspace, stream);
}

void launch(const device::CrossEntropyGrad& c, const std::byte*, std::byte*, Stream stream) {
  if (c.tokens == 0 || c.vocab == 0) return;
  if (c.vocab > kMostEntries) refuse("cross_entropy_grad", "a row has more than 2^30 entries");
  const Labels labels = labels_of(c.labels, c.first_entry);
  const auto weight = static_cast<float>(1 / c.tokens_of_mean);
  with_type(c.logits.dtype, "cross_entropy_grad", [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const auto launch_by = [&](auto kernel, std::int64_t in_access) {
      const std::int64_t of_row = divide_up(c.vocab, in_access * kLossThreads * kGradUnroll);
      kernel<<<static_cast<unsigned>(c.tokens * of_row), kLossThreads, 0, stream>>>(
          typed<const T>(c.logits.data), typed<T>(c.dlogits.data), labels, static_cast<int>(c.vocab),
          static_cast<int>(real_of(c.real, c.vocab)), c.lse, weight, static_cast<unsigned>(of_row));
    };
    if (c.vocab % kWide<T> == 0 && all_aligned({c.logits.data, c.dlogits.data})) {
      launch_by(cross_entropy_grad_kernel<T, kWide<T>>, kWide<T>);
    } else {
      launch_by(cross_entropy_grad_kernel<T, 1>, 1);
    }
  });
  check_launch("cross_entropy_grad");
}

}  // namespace orrery::cuda

// Cross entropy over a divided vocabulary: what each rank makes of its entries, and the loss of what all made
// together.

#include "executor/cuda/generic_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kLossThreads = 1024;

// A token's largest logit, −∞ where all entries are padding. A block has a token.
template <class T, int N>
__global__ __launch_bounds__(kThreads) void maximum_kernel(device::CrossEntropyPart a) {
  __shared__ float parts[kWarps];
  const std::int64_t token = blockIdx.x, real = min(a.real, a.vocab);
  const T* logits = elements_of<const T>(a.logits) + token * a.vocab;
  float largest = -INFINITY;
  for (std::int64_t i = threadIdx.x * N; i < real; i += kThreads * N) {
    const Floats<N> x = load<N>(logits + i);
#pragma unroll
    for (int j = 0; j < N; ++j) largest = i + j < real ? fmaxf(x.at[j], largest) : largest;
  }
  largest = block_max<kWarps>(largest, parts);
  if (threadIdx.x == 0) elements_of<float>(a.maximum)[token] = largest;
}

// A token's sum of exponentials relative to the maximum of all ranks, and its label's logit, 0 where another
// rank has the label.
template <class T, int N>
__global__ __launch_bounds__(kThreads) void sum_kernel(device::CrossEntropyPart a) {
  __shared__ float parts[kWarps];
  const std::int64_t token = blockIdx.x, real = min(a.real, a.vocab);
  const T* logits = elements_of<const T>(a.logits) + token * a.vocab;
  const float largest = elements_of<float>(a.maximum)[token];
  float sum = 0;
  for (std::int64_t i = threadIdx.x * N; i < real; i += kThreads * N) {
    const Floats<N> x = load<N>(logits + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += i + j < real ? expf(x.at[j] - largest) : 0;
  }
  sum = block_sum<kWarps>(sum, parts);
  if (threadIdx.x != 0) return;
  const std::int64_t label = read_whole(a.labels, token) - a.first_entry;
  elements_of<float>(a.sum)[token] = sum;
  elements_of<float>(a.label_logit)[token] = label >= 0 && label < real ? to_float(logits[label]) : 0;
}

// One block: threads take every 1,024th token, and their sums are added in order.
__global__ __launch_bounds__(kLossThreads) void loss_kernel(device::CrossEntropyPart a) {
  __shared__ double parts[kLossThreads / kWarp];
  double loss = 0;
  for (std::int64_t token = threadIdx.x; token < a.tokens; token += kLossThreads) {
    const double largest = elements_of<float>(a.maximum)[token], sum = elements_of<float>(a.sum)[token];
    const float lse = static_cast<float>(largest + log(sum));
    elements_of<float>(a.lse)[token] = lse;
    loss += static_cast<double>(lse) - static_cast<double>(elements_of<float>(a.label_logit)[token]);
  }
  loss = block_sum<kLossThreads / kWarp>(loss, parts);
  if (threadIdx.x == 0) elements_of<float>(a.loss)[0] = static_cast<float>(loss / a.tokens_of_mean);
}

}  // namespace

void launch(const device::CrossEntropyPart& x, const std::byte*, std::byte*, Stream stream) {
  const auto blocks = static_cast<unsigned>(x.tokens);
  if (x.part == 2) {
    loss_kernel<<<1, kLossThreads, 0, stream>>>(x);
  } else if (blocks > 0) {
    with_pack(x.logits.dtype, x.vocab, {x.logits}, "cross entropy part", [&](auto tag, auto count) {
      using T = typename decltype(tag)::Type;
      const auto kernel = x.part == 0 ? maximum_kernel<T, count> : sum_kernel<T, count>;
      kernel<<<blocks, kThreads, 0, stream>>>(x);
    });
  }
  check_launch("cross entropy part");
}

}  // namespace orrery::cuda

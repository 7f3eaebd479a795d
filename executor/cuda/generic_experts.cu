// Rows to experts and back. What is written row by row is written from a table that says whose row it is, so
// that rows without a token get their zeros on the way.

#include "executor/cuda/checks.hpp"
#include "executor/cuda/generic_device.cuh"

namespace orrery::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kSlotThreads = 1024;
constexpr int kSlotWarps = kSlotThreads / kWarp;
constexpr int kPicksOfThread = 4;

// How many of a block's counts come before the thread's, and all of them together.
struct Counted {
  int before, all;
};
__device__ Counted count_before(int own, int* shared) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int up_to = own;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, up_to, step);
    if (lane >= step) up_to += other;
  }
  __syncthreads();  // The last turn's counts have been read.
  if (lane == kWarp - 1) shared[warp] = up_to;
  __syncthreads();
  Counted counted = {up_to - own, 0};
  for (int i = 0; i < kSlotWarps; ++i) {
    if (i < warp) counted.before += shared[i];
    counted.all += shared[i];
  }
  return counted;
}

// A block has an expert and gives its slots to picks in their order: places by pick, and picks by place (−1:
// none).
__global__ __launch_bounds__(kSlotThreads) void slots_kernel(device::Dispatch a, std::int32_t* sources) {
  __shared__ int counts[kSlotWarps];
  const std::int64_t expert = blockIdx.x, picks = a.tokens * a.picks_per_token;
  std::int64_t filled = 0;
  for (std::int64_t begin = 0; begin < picks; begin += kSlotThreads * kPicksOfThread) {
    const std::int64_t first = begin + threadIdx.x * kPicksOfThread;
    bool own[kPicksOfThread];
    int count = 0;
#pragma unroll
    for (int i = 0; i < kPicksOfThread; ++i) {
      own[i] = first + i < picks && read_whole(a.picks, first + i) == expert;
      count += own[i] ? 1 : 0;
    }
    const Counted counted = count_before(count, counts);
    std::int64_t slot = filled + counted.before;
#pragma unroll
    for (int i = 0; i < kPicksOfThread; ++i) {
      if (!own[i]) continue;
      const std::int64_t place = slot < a.slots ? expert * a.slots + slot : -1;
      write_whole(a.place, first + i, place);
      if (place >= 0) sources[place] = static_cast<std::int32_t>(first + i);
      ++slot;
    }
    filled += counted.all;
  }
  for (std::int64_t slot = min(filled, a.slots) + threadIdx.x; slot < a.slots; slot += kSlotThreads) {
    sources[expert * a.slots + slot] = -1;
  }
}

// Picks by place, of places by pick; the table is full of −1.
__global__ __launch_bounds__(kThreads) void sources_kernel(Array places, std::int64_t picks,
                                                           std::int32_t* sources) {
  const std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (i >= picks) return;
  const std::int64_t place = read_whole(places, i);
  if (place >= 0) sources[place] = static_cast<std::int32_t>(i);
}

// What tokens' rows, experts' rows and picks have to do with each other.
struct Routed {
  std::int64_t width, picks_per_token;
  Array tokens, rows;     // T
  Array places, weights;  // By pick; weights: or none.
  __device__ float weight(std::int64_t pick) const {
    return weights.data != nullptr ? read_float(weights, pick) : 1;
  }
};

// rows = weight · tokens, or zeros. A block has an expert's row.
template <class T, int N>
__global__ __launch_bounds__(kThreads) void rows_kernel(Routed a, const std::int32_t* sources) {
  const std::int64_t row = blockIdx.x;
  const std::int32_t source = sources[row];
  const float weight = source < 0 ? 0 : a.weight(source);
  T* const to = elements_of<T>(a.rows) + row * a.width;
  const T* const from = elements_of<const T>(a.tokens) + max(source, 0) / a.picks_per_token * a.width;
  for (std::int64_t c = threadIdx.x * N; c < a.width; c += kThreads * N) {
    Floats<N> x = {};
    if (source >= 0) x = load<N>(from + c);
#pragma unroll
    for (int i = 0; i < N; ++i) x.at[i] = source < 0 ? 0 : weight * x.at[i];
    store<N>(to + c, x);
  }
}

// tokens = the sum of weight · rows over a token's picks, in their order. A block has a token.
template <class T, int N>
__global__ __launch_bounds__(kThreads) void tokens_kernel(Routed a) {
  const std::int64_t token = blockIdx.x;
  for (std::int64_t c = threadIdx.x * N; c < a.width; c += kThreads * N) {
    Floats<N> sum = {};
    for (std::int64_t pick = token * a.picks_per_token; pick < (token + 1) * a.picks_per_token; ++pick) {
      const std::int64_t place = read_whole(a.places, pick);
      if (place < 0) continue;
      const float weight = a.weight(pick);
      const Floats<N> x = load<N>(elements_of<const T>(a.rows) + place * a.width + c);
#pragma unroll
      for (int i = 0; i < N; ++i) sum.at[i] = fmaf(weight, x.at[i], sum.at[i]);
    }
    store<N>(elements_of<T>(a.tokens) + token * a.width + c, sum);
  }
}

// dweights = tokens · rows, 0 where a pick was dropped. A warp has a pick.
template <class T, int N>
__global__ __launch_bounds__(kThreads) void dweights_kernel(Routed a, std::int64_t picks, Array dweights) {
  const std::int64_t pick = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / kWarp;
  if (pick >= picks) return;
  const std::int64_t place = read_whole(a.places, pick);
  const T* const token = elements_of<const T>(a.tokens) + pick / a.picks_per_token * a.width;
  const T* const row = elements_of<const T>(a.rows) + max(place, std::int64_t{0}) * a.width;
  float sum = 0;
  for (std::int64_t c = threadIdx.x % kWarp * N; place >= 0 && c < a.width; c += kWarp * N) {
    const Floats<N> x = load<N>(token + c), y = load<N>(row + c);
#pragma unroll
    for (int i = 0; i < N; ++i) sum = fmaf(x.at[i], y.at[i], sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) write_float(dweights, pick, sum);
}

template <class Call>
void with_rows(const Routed& a, const char* kernel, Call call) {
  with_pack(a.rows.dtype, a.width, {a.tokens, a.rows}, kernel, call);
  check_launch(kernel);
}

void launch_rows(const Routed& a, std::int64_t rows, const std::int32_t* sources, const char* kernel,
                 Stream stream) {
  if (rows == 0) return;
  with_rows(a, kernel, [&](auto tag, auto count) {
    using T = typename decltype(tag)::Type;
    rows_kernel<T, count><<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(a, sources);
  });
}

void launch_tokens(const Routed& a, std::int64_t tokens, const char* kernel, Stream stream) {
  if (tokens == 0) return;
  with_rows(a, kernel, [&](auto tag, auto count) {
    using T = typename decltype(tag)::Type;
    tokens_kernel<T, count><<<static_cast<unsigned>(tokens), kThreads, 0, stream>>>(a);
  });
}

void launch_dweights(const Routed& a, std::int64_t picks, const Array& dweights, const char* kernel,
                     Stream stream) {
  if (picks == 0 || dweights.data == nullptr) return;
  with_rows(a, kernel, [&](auto tag, auto count) {
    using T = typename decltype(tag)::Type;
    const auto blocks = static_cast<unsigned>(divide_up(picks, kWarps));
    dweights_kernel<T, count><<<blocks, kThreads, 0, stream>>>(a, picks, dweights);
  });
}

}  // namespace

// Both: the pick of each place.
std::int64_t workspace_bytes(const device::Dispatch& x) { return x.experts * x.slots * std::int64_t{4}; }
std::int64_t workspace_bytes(const device::CombineGrad& x) { return x.experts * x.slots * std::int64_t{4}; }

void launch(const device::Dispatch& x, const std::byte*, std::byte* workspace, Stream stream) {
  if (x.experts == 0) return;
  auto* const sources = reinterpret_cast<std::int32_t*>(workspace);
  slots_kernel<<<static_cast<unsigned>(x.experts), kSlotThreads, 0, stream>>>(x, sources);
  check_launch("dispatch, slots");
  const Routed routed = {x.width, x.picks_per_token, x.x, x.rows, x.place, x.weights};
  launch_rows(routed, x.experts * x.slots, sources, "dispatch", stream);
}

void launch(const device::DispatchGrad& x, const std::byte*, std::byte*, Stream stream) {
  launch_tokens({x.width, x.picks_per_token, x.dx, x.drows, x.place, x.weights}, x.tokens,
                "dispatch gradient", stream);
  launch_dweights({x.width, x.picks_per_token, x.x, x.drows, x.place, x.weights},
                  x.tokens * x.picks_per_token, x.dweights, "dispatch gradient, weights", stream);
}

void launch(const device::Combine& x, const std::byte*, std::byte*, Stream stream) {
  launch_tokens({x.width, x.picks_per_token, x.y, x.rows, x.place, x.weights}, x.tokens, "combine", stream);
}

void launch(const device::CombineGrad& x, const std::byte*, std::byte* workspace, Stream stream) {
  const std::int64_t rows = x.experts * x.slots, picks = x.tokens * x.picks_per_token;
  auto* const sources = reinterpret_cast<std::int32_t*>(workspace);
  if (rows > 0) check(cudaMemsetAsync(sources, 0xFF, static_cast<std::size_t>(rows) * 4, stream), "filling");
  if (picks > 0) {
    const auto blocks = static_cast<unsigned>(divide_up(picks, kThreads));
    sources_kernel<<<blocks, kThreads, 0, stream>>>(x.place, picks, sources);
    check_launch("combine gradient, sources");
  }
  launch_rows({x.width, x.picks_per_token, x.dy, x.drows, x.place, x.weights}, rows, sources,
              "combine gradient", stream);
  launch_dweights({x.width, x.picks_per_token, x.dy, x.rows, x.place, x.weights}, picks, x.dweights,
                  "combine gradient, weights", stream);
}

}  // namespace orrery::cuda

// Routers. Scores have the host's bits (executor/kernels/lanes.hpp says the same exponential and sums lanes
// in the same order), so that equal ones are equal here too and picks don't depend on who made them.

#include "executor/cuda/generic_device.cuh"

namespace orrery::cuda {
namespace {

// A warp has a token, and its experts' numbers in shared memory.
constexpr int kWarps = 2;
constexpr int kThreads = kWarps * kWarp;
constexpr std::int64_t kExperts = 1024;
constexpr int kHostLanes = 16;

__device__ float exp_of_host(float x) {
  const float shift = 12582912.0f;  // 1.5 · 2²³: adding it rounds to a whole number.
  const float above = -87.0f > x ? -87.0f : x;
  const float in = 89.0f < above ? 89.0f : above;
  const float shifted = __fmaf_rn(in, 1.44269504088896341f, shift);
  const float n = __fsub_rn(shifted, shift);
  float r = __fmaf_rn(n, -0.693359375f, in);
  r = __fmaf_rn(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = __fmaf_rn(p, r, 1.3981999507e-3f);
  p = __fmaf_rn(p, r, 8.3334519073e-3f);
  p = __fmaf_rn(p, r, 4.1665795894e-2f);
  p = __fmaf_rn(p, r, 1.6666665459e-1f);
  p = __fmaf_rn(p, r, 5.0000001201e-1f);
  p = __fadd_rn(__fmaf_rn(p, __fmul_rn(r, r), r), 1.0f);
  const unsigned bits = (__float_as_uint(__fsub_rn(shifted, 1.0f)) << 23) + 0x3F800000u;
  const float y = __fmul_rn(__fmul_rn(p, __uint_as_float(bits)), 2.0f);
  const float low = x < -86.6f ? 0.0f : y;
  return 88.72283f < x ? INFINITY : low;
}

// Softmax or sigmoid of a token's logits. REQUIRES: all lanes come here.
__device__ void scores_of(const Array& logits, std::int64_t token, int experts, bool sigmoid, float* scores) {
  const int lane = threadIdx.x % kWarp;
  const std::int64_t at = token * experts;
  if (sigmoid) {
    for (int e = lane; e < experts; e += kWarp) {
      scores[e] = __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_of_host(-read_float(logits, at + e))));
    }
    __syncwarp();
    return;
  }
  float largest = -INFINITY;
  for (int e = lane; e < experts; e += kWarp) largest = fmaxf(largest, read_float(logits, at + e));
  largest = warp_max(largest);
  for (int e = lane; e < experts; e += kWarp)
    scores[e] = exp_of_host(__fsub_rn(read_float(logits, at + e), largest));
  __syncwarp();
  float sum = 0;
  if (lane < kHostLanes) {
    for (int e = lane; e < experts; e += kHostLanes) sum = __fadd_rn(sum, scores[e]);
  }
#pragma unroll
  for (int half = kHostLanes / 2; half > 0; half /= 2)
    sum = __fadd_rn(sum, __shfl_down_sync(kAllLanes, sum, half));
  const float factor = __fdiv_rn(1.0f, __shfl_sync(kAllLanes, sum, 0));
  __syncwarp();
  for (int e = lane; e < experts; e += kWarp) scores[e] = __fmul_rn(factor, scores[e]);
  __syncwarp();
}

struct Ranked {
  float score = 0;
  int index = -1;  // −1: none.
};
// The higher score first, and of equal ones the higher index.
__device__ bool better(const Ranked& a, const Ranked& b) {
  if (a.index < 0 || b.index < 0) return b.index < a.index;
  return a.score != b.score ? a.score > b.score : a.index > b.index;
}
// The best of those that have no state yet, for all lanes.
__device__ Ranked best_of(const float* values, const int* states, int n) {
  Ranked best;
  for (int i = threadIdx.x % kWarp; i < n; i += kWarp) {
    const Ranked own = {values[i], i};
    if (states[i] == 0 && better(own, best)) best = own;
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    Ranked other;
    other.score = __shfl_xor_sync(kAllLanes, best.score, step);
    other.index = __shfl_xor_sync(kAllLanes, best.index, step);
    if (better(other, best)) best = other;
  }
  return {__shfl_sync(kAllLanes, best.score, 0), __shfl_sync(kAllLanes, best.index, 0)};
}

// How good a group of experts is: its best, or its two best together.
__device__ float group_score(const float* choice, int width, bool two) {
  float best = choice[0], second = choice[0];
  for (int e = 1; e < width; ++e) {
    second = choice[e] > best ? best : e == 1 ? choice[e] : fmaxf(second, choice[e]);
    best = fmaxf(best, choice[e]);
  }
  return two ? __fadd_rn(best, second) : best;
}

// What a token's warp works on. States: 0 may be picked, 1 isn't in a group that was picked, 2 + i is pick i.
struct Candidates {
  float *scores, *choice, *group_scores;
  int *states, *group_states;
  __device__ Candidates(float* shared, int experts)
      : scores(shared + threadIdx.x / kWarp * 5 * experts),
        choice(scores + experts),
        group_scores(choice + experts),
        states(reinterpret_cast<int*>(group_scores + experts)),
        group_states(states + experts) {}
};

__device__ void keep_best_groups(const device::Route& a, int experts, Candidates& all) {
  const int lane = threadIdx.x % kWarp, groups = static_cast<int>(a.groups), width = experts / groups;
  for (int g = lane; g < groups; g += kWarp) {
    all.group_scores[g] = group_score(all.choice + g * width, width, a.sigmoid && width > 1);
    all.group_states[g] = 0;
  }
  for (int e = lane; e < experts; e += kWarp) all.states[e] = 1;
  __syncwarp();
  for (int i = 0; i < a.top_groups; ++i) {
    const int group = best_of(all.group_scores, all.group_states, groups).index;
    __syncwarp();
    if (lane == 0) all.group_states[group] = 1;
    for (int e = lane; e < width; e += kWarp) all.states[group * width + e] = 0;
    __syncwarp();
  }
}

__global__ __launch_bounds__(kThreads) void route_kernel(device::Route a) {
  extern __shared__ float shared[];
  const std::int64_t token = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / kWarp;
  if (token >= a.tokens) return;
  const int experts = static_cast<int>(a.experts), picks = static_cast<int>(a.picks_per_token);
  const int lane = threadIdx.x % kWarp;
  Candidates all(shared, experts);
  scores_of(a.logits, token, experts, a.sigmoid, all.scores);
  for (int e = lane; e < experts; e += kWarp) {
    all.choice[e] = a.bias.data != nullptr ? __fadd_rn(all.scores[e], read_float(a.bias, e)) : all.scores[e];
  }
  __syncwarp();
  keep_best_groups(a, experts, all);
  float total = 0;
  for (int i = 0; i < picks; ++i) {
    const int expert = best_of(all.choice, all.states, experts).index;
    total = __fadd_rn(total, all.scores[expert]);
    __syncwarp();
    if (lane == 0) all.states[expert] = 2 + i;
    __syncwarp();
  }
  const float factor = __fdiv_rn(a.scale, a.normalized ? total : 1);
  for (int e = lane; e < experts; e += kWarp) {
    if (all.states[e] < 2) continue;
    const std::int64_t at = token * picks + all.states[e] - 2;
    write_float(a.weights, at, __fmul_rn(factor, all.scores[e]));
    write_whole(a.picks, at, e);
  }
}

__global__ __launch_bounds__(kThreads) void route_grad_kernel(device::RouteGrad a) {
  extern __shared__ float shared[];
  const std::int64_t token = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / kWarp;
  if (token >= a.tokens) return;
  const int experts = static_cast<int>(a.experts), picks = static_cast<int>(a.picks_per_token);
  const int lane = threadIdx.x % kWarp;
  float* const scores = shared + threadIdx.x / kWarp * 2 * experts;
  float* const dscores = scores + experts;
  for (int e = lane; e < experts; e += kWarp) dscores[e] = 0;
  scores_of(a.logits, token, experts, a.sigmoid, scores);
  // Every lane sums in the picks' order.
  const auto score_of = [&](int i) { return scores[read_whole(a.picks, token * picks + i)]; };
  float total = 0, mean = 0, dot = 0;
  for (int i = 0; i < picks; ++i) total = __fadd_rn(total, score_of(i));
  for (int i = 0; i < picks; ++i) {
    const float product = __fmul_rn(read_float(a.dweights, token * picks + i), score_of(i));
    mean = __fadd_rn(mean, __fdiv_rn(product, total));
  }
  const float factor = __fdiv_rn(a.scale, a.normalized ? total : 1);
  for (int i = 0; i < picks; ++i) {
    const float through = __fsub_rn(read_float(a.dweights, token * picks + i), a.normalized ? mean : 0);
    const float dscore = __fmul_rn(factor, through);
    dot = __fadd_rn(dot, __fmul_rn(dscore, score_of(i)));
    if (lane == 0) dscores[read_whole(a.picks, token * picks + i)] = dscore;
  }
  __syncwarp();
  for (int e = lane; e < experts; e += kWarp) {
    const float own = a.sigmoid ? __fmul_rn(dscores[e], __fsub_rn(1, scores[e])) : __fsub_rn(dscores[e], dot);
    write_float(a.dlogits, token * experts + e, __fmul_rn(scores[e], own));
  }
}

// Shared memory of a block with so many numbers for each expert: 40 KiB at most.
int shared_bytes(std::int64_t experts, int numbers) {
  if (experts > kExperts) refuse("route", "there can be 1024 experts at most");
  return kWarps * numbers * static_cast<int>(experts) * 4;
}

}  // namespace

void launch(const device::Route& x, const std::byte*, std::byte*, Stream stream) {
  if (x.tokens == 0) return;
  const auto blocks = static_cast<unsigned>(divide_up(x.tokens, kWarps));
  route_kernel<<<blocks, kThreads, shared_bytes(x.experts, 5), stream>>>(x);
  check_launch("route");
}

void launch(const device::RouteGrad& x, const std::byte*, std::byte*, Stream stream) {
  if (x.tokens == 0) return;
  const auto blocks = static_cast<unsigned>(divide_up(x.tokens, kWarps));
  route_grad_kernel<<<blocks, kThreads, shared_bytes(x.experts, 2), stream>>>(x);
  check_launch("route gradient");
}

}  // namespace orrery::cuda

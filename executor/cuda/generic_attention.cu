// Attention with a running softmax (Milakov & Gimelshein 2018; Dao 2023, FlashAttention-2): each block has a
// tile of one head's queries and goes over the keys that any of them sees.

#include "executor/cuda/generic_attention.cuh"

namespace orrery::cuda {
namespace {

constexpr float kNothing = -INFINITY;

// Over the 16 threads that have the same rows.
__device__ float row_max(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, step));
  return x;
}
__device__ float row_sum(float x) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) x += __shfl_xor_sync(kAllLanes, x, step);
  return x;
}

// One row's softmax so far: exponentials are relative to `largest`.
struct Running {
  float largest, sum;
  // Scores become exponentials; returns what those before have to be multiplied with.
  __device__ float add(float (&scores)[4]) {
    const float top = row_max(fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3])));
    const float next = fmaxf(largest, top);
    const float shift = next == kNothing ? 0 : next;
    const float before = largest == kNothing ? 0 : expf(largest - shift);
    float own = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) own += scores[j] = expf(scores[j] - shift);
    sum = sum * before + row_sum(own);
    largest = next;
    return before;
  }
};

template <int kWidth>
__global__ __launch_bounds__(kTileThreads) void attention_kernel(device::Attention a, std::int64_t tiles) {
  extern __shared__ float4 shared[];
  float* const q = reinterpret_cast<float*>(shared);
  float* const pairs = q + kTile * kRowStride<kWidth>;  // Keys, then their values.
  float* const scores = pairs + kTile * kRowStride<kWidth>;
  int* const positions = reinterpret_cast<int*>(scores + kTile * kScoreStride);
  const device::AttentionShape& shape = a.shape;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  // Causal: the last tiles see the most keys and begin first.
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kTile;
  const std::int64_t head = blockIdx.x / tiles % shape.heads, batch = blockIdx.x / tiles / shape.heads;
  const std::int64_t group = head / (shape.heads / shape.kv_heads);
  const int d = static_cast<int>(shape.d), e = static_cast<int>(shape.e);
  const HeadRows queries = {a.q, shape.queries, shape.heads, d, shape.strides.q};
  const HeadRows keys = {a.k, shape.keys, shape.kv_heads, d, shape.strides.k};
  const HeadRows values = {a.v, shape.keys, shape.kv_heads, e, shape.strides.v},
                 results = {a.o, shape.queries, shape.heads, e};

  Seen seen[4];
  Running rows[4];
  for (int i = 0; i < 4; ++i) {
    seen[i] = seen_by(shape, first + 4 * y + i);
    // A sink is a score like others, without a value.
    rows[i] = a.sink.data != nullptr ? Running{read_float(a.sink, head), 1.0f} : Running{kNothing, 0.0f};
  }
  const Seen any = seen_by_tile(shape, first);
  const bool in_order = shape.key_positions == nullptr;
  const std::int64_t begin = in_order ? any.low / kTile * static_cast<std::int64_t>(kTile) : 0;
  const std::int64_t end = in_order ? min(shape.keys, any.high + std::int64_t{1}) : shape.keys;
  float sums[4][kWidth / 16] = {};
  load_tile<kWidth>(queries, batch, first, head, q);
  for (std::int64_t key = begin; key < end; key += kTile) {
    __syncthreads();
    bool sees = false;
    if (threadIdx.x < kTile) {
      positions[threadIdx.x] = key_position(shape, key + threadIdx.x);
      sees = any.sees(positions[threadIdx.x]);
    }
    if (!__syncthreads_or(sees)) continue;
    load_tile<kWidth>(keys, batch, key, group, pairs);
    __syncthreads();
    float p[4][4];
    scores_of<kWidth>(q, pairs, d, p);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        p[i][j] = seen[i].sees(positions[x + 16 * j]) ? capped(shape, p[i][j]) : kNothing;
      }
      const float before = rows[i].add(p[i]);
#pragma unroll
      for (int j = 0; j < kWidth / 16; ++j) sums[i][j] *= before;
    }
    store_scores(p, scores);
    __syncthreads();
    load_tile<kWidth>(values, batch, key, group, pairs);
    __syncthreads();
    add_product<kWidth>(scores, pairs, e, sums);
  }

  float factors[4];
  for (int i = 0; i < 4; ++i) {
    factors[i] = rows[i].sum > 0 ? 1 / rows[i].sum : 0;
    const std::int64_t query = first + 4 * y + i;
    if (x != 0 || query >= shape.queries) continue;
    a.lse[(batch * shape.heads + head) * shape.queries + query] = rows[i].largest + logf(rows[i].sum);
  }
  store_tile<kWidth>(results, batch, first, head, sums, factors);
}

}  // namespace

void launch_generic(const device::Attention& x, std::byte*, Stream stream) {
  const std::int64_t tiles = divide_up(x.shape.queries, kTile),
                     blocks = tiles * x.shape.batch * x.shape.heads;
  if (blocks == 0) return;
  by_width(x.shape, [&](auto width) {
    constexpr int kBytes = tile_bytes<width>(2, kTile);
    const auto kernel = attention_kernel<width>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    kernel<<<static_cast<unsigned>(blocks), kTileThreads, kBytes, stream>>>(x, tiles);
  });
  check_launch("attention");
}

}  // namespace orrery::cuda

// Attention's gradient without an atomic operation: dq by blocks that have queries and go over keys, dk and
// dv by blocks that have keys and go over the queries of all heads that share them. Scores are worked out
// again from the sum of exponentials (Dao 2023, FlashAttention-2).

#include "executor/cuda/generic_attention.cuh"

namespace orrery::cuda {
namespace {

constexpr int kSumThreads = 256;

// Of a row: Σ dout · o, which its scores' gradients are relative to. A warp has a row.
__global__ __launch_bounds__(kSumThreads) void mean_kernel(device::AttentionGrad a, std::int64_t rows,
                                                           float* means) {
  const device::AttentionShape& shape = a.shape;
  const std::int64_t row = blockIdx.x * std::int64_t{kSumThreads / 32} + threadIdx.x / 32;
  if (row >= rows) return;
  const std::int64_t head = row % shape.heads, query = row / shape.heads % shape.queries;
  const std::int64_t batch = row / shape.heads / shape.queries;
  float sum = 0;
  for (std::int64_t c = threadIdx.x % 32; c < shape.e; c += 32) {
    sum = fmaf(read_float(a.dout, row * shape.e + c), read_float(a.o, row * shape.e + c), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) means[(batch * shape.heads + head) * shape.queries + query] = sum;
}

// A block has a head's sink.
__global__ __launch_bounds__(kSumThreads) void sink_kernel(device::AttentionGrad a, const float* means) {
  const device::AttentionShape& shape = a.shape;
  const std::int64_t head = blockIdx.x;
  const float sink = read_float(a.sink, head);
  float sum = 0;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    const std::int64_t row = (batch * shape.heads + head) * shape.queries;
    for (std::int64_t i = threadIdx.x; i < shape.queries; i += kSumThreads) {
      sum = fmaf(expf(sink - a.lse[row + i]), means[row + i], sum);
    }
  }
  __shared__ float parts[kSumThreads / kWarp];
  sum = block_sum<kSumThreads / kWarp>(sum, parts);
  if (threadIdx.x == 0) elements_of<float>(a.dsink)[head] -= sum;
}

template <int kWidth>
__global__ __launch_bounds__(kTileThreads) void query_kernel(device::AttentionGrad a, const float* means,
                                                             std::int64_t tiles) {
  extern __shared__ float4 shared[];
  float* const q = reinterpret_cast<float*>(shared);
  float* const dout = q + kTile * kRowStride<kWidth>;
  float* const pairs = dout + kTile * kRowStride<kWidth>;  // Values, then their keys.
  float* const dscores = pairs + kTile * kRowStride<kWidth>;
  int* const positions = reinterpret_cast<int*>(dscores + kTile * kScoreStride);
  const device::AttentionShape& shape = a.shape;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const std::int64_t first = (tiles - 1 - blockIdx.x % tiles) * kTile;
  const std::int64_t head = blockIdx.x / tiles % shape.heads, batch = blockIdx.x / tiles / shape.heads;
  const std::int64_t group = head / (shape.heads / shape.kv_heads);
  const int d = static_cast<int>(shape.d), e = static_cast<int>(shape.e);
  const HeadRows queries = {a.q, shape.queries, shape.heads, d, shape.strides.q};
  const HeadRows keys = {a.k, shape.keys, shape.kv_heads, d, shape.strides.k};
  const HeadRows values = {a.v, shape.keys, shape.kv_heads, e, shape.strides.v},
                 douts = {a.dout, shape.queries, shape.heads, e};

  Seen seen[4];
  float lse[4] = {}, mean[4] = {};
  for (int i = 0; i < 4; ++i) {
    const std::int64_t query = first + 4 * y + i, row = (batch * shape.heads + head) * shape.queries + query;
    seen[i] = seen_by(shape, query);
    if (query >= shape.queries) continue;
    lse[i] = a.lse[row];
    mean[i] = means[row];
  }
  const Seen any = seen_by_tile(shape, first);
  const bool in_order = shape.key_positions == nullptr;
  const std::int64_t begin = in_order ? any.low / kTile * static_cast<std::int64_t>(kTile) : 0;
  const std::int64_t end = in_order ? min(shape.keys, any.high + std::int64_t{1}) : shape.keys;
  float sums[4][kWidth / 16] = {};
  load_tile<kWidth>(queries, batch, first, head, q);
  load_tile<kWidth>(douts, batch, first, head, dout);
  for (std::int64_t key = begin; key < end; key += kTile) {
    __syncthreads();
    bool sees = false;
    if (threadIdx.x < kTile) {
      positions[threadIdx.x] = key_position(shape, key + threadIdx.x);
      sees = any.sees(positions[threadIdx.x]);
    }
    if (!__syncthreads_or(sees)) continue;
    load_tile<kWidth>(values, batch, key, group, pairs);
    __syncthreads();
    float ds[4][4], s[4][4];
    scores_of<kWidth>(dout, pairs, e, ds);
    __syncthreads();
    load_tile<kWidth>(keys, batch, key, group, pairs);
    __syncthreads();
    scores_of<kWidth>(q, pairs, d, s);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float score = capped(shape, s[i][j]);
        const float p = seen[i].sees(positions[x + 16 * j]) ? expf(score - lse[i]) : 0;
        ds[i][j] = p * (ds[i][j] - mean[i]) * through_cap(shape, score);
      }
    }
    store_scores(ds, dscores);
    __syncthreads();
    add_product<kWidth>(dscores, pairs, d, sums);
  }
  store_tile<kWidth>({a.dq, shape.queries, shape.heads, d, shape.strides.dq}, batch, first, head, sums,
                     {1, 1, 1, 1});
}

// What a block of keys needs to know of a tile of queries.
struct QueryRows {
  Seen seen[kTile];
  float lse[kTile], mean[kTile];
};

// Queries that see any of the keys at positions [low, high], where queries stand in order.
struct Span {
  std::int64_t begin, end;
};
__device__ Span queries_of(const device::AttentionShape& shape, std::int64_t low, std::int64_t high) {
  Span span = {0, shape.queries};
  if (shape.positions != nullptr) return span;
  if (shape.causal) span.begin = low / kTile * kTile;
  if (shape.window > 0) span.end = min(span.end, high + shape.window);
  if (shape.chunk > 0) span.end = min(span.end, (high / shape.chunk + 1) * shape.chunk);
  return span;
}

template <int kWidth>
__global__ __launch_bounds__(kTileThreads) void key_kernel(device::AttentionGrad a, const float* means,
                                                           std::int64_t tiles) {
  extern __shared__ float4 shared[];
  float* const k = reinterpret_cast<float*>(shared);
  float* const v = k + kTile * kRowStride<kWidth>;
  float* const rows = v + kTile * kRowStride<kWidth>;  // Queries, then what came back for them, then queries.
  float* const scores = rows + kTile * kRowStride<kWidth>;
  QueryRows& tile = *reinterpret_cast<QueryRows*>(scores + kTile * kScoreStride);
  const device::AttentionShape& shape = a.shape;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, lane = threadIdx.x % 32;
  const std::int64_t first = blockIdx.x % tiles * kTile;
  const std::int64_t group = blockIdx.x / tiles % shape.kv_heads;
  const std::int64_t batch = blockIdx.x / tiles / shape.kv_heads, share = shape.heads / shape.kv_heads;
  const int d = static_cast<int>(shape.d), e = static_cast<int>(shape.e);
  const HeadRows queries = {a.q, shape.queries, shape.heads, d, shape.strides.q},
                 douts = {a.dout, shape.queries, shape.heads, e};

  int position[4];
  for (int j = 0; j < 4; ++j) position[j] = key_position(shape, first + x + 16 * j);
  // Of the tile's keys, in every warp; the first of them is always there.
  const int one = key_position(shape, first + lane), other = key_position(shape, first + lane + 32);
  const int low = least_of_warp(min(one < 0 ? INT_MAX : one, other < 0 ? INT_MAX : other));
  const int high = largest_of_warp(max(one, other));
  const Span span = queries_of(shape, low, high);
  float dk[4][kWidth / 16] = {}, dv[4][kWidth / 16] = {};
  load_tile<kWidth>({a.k, shape.keys, shape.kv_heads, d, shape.strides.k}, batch, first, group, k);
  load_tile<kWidth>({a.v, shape.keys, shape.kv_heads, e, shape.strides.v}, batch, first, group, v);
  for (std::int64_t head = group * share; head < (group + 1) * share; ++head) {
    for (std::int64_t query = span.begin; query < span.end; query += kTile) {
      __syncthreads();
      bool sees = false;
      if (threadIdx.x < kTile) {
        const std::int64_t at = query + threadIdx.x, row = (batch * shape.heads + head) * shape.queries + at;
        const Seen seen = seen_by(shape, at);
        sees = seen.low <= high && seen.high >= low;
        tile.seen[threadIdx.x] = seen;
        tile.lse[threadIdx.x] = at < shape.queries ? a.lse[row] : 0;
        tile.mean[threadIdx.x] = at < shape.queries ? means[row] : 0;
      }
      if (!__syncthreads_or(sees)) continue;
      load_tile<kWidth>(queries, batch, query, head, rows);
      __syncthreads();
      float p[4][4], ds[4][4], through[4][4];
      scores_of<kWidth>(rows, k, d, p);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Seen seen = tile.seen[4 * y + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float score = capped(shape, p[i][j]);
          p[i][j] = seen.sees(position[j]) ? expf(score - tile.lse[4 * y + i]) : 0;
          through[i][j] = through_cap(shape, score);
        }
      }
      store_scores(p, scores);
      __syncthreads();
      load_tile<kWidth>(douts, batch, query, head, rows);
      __syncthreads();
      scores_of<kWidth>(rows, v, e, ds);
      add_turned_product<kWidth>(scores, rows, e, dv);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) ds[i][j] = p[i][j] * (ds[i][j] - tile.mean[4 * y + i]) * through[i][j];
      }
      __syncthreads();
      store_scores(ds, scores);
      load_tile<kWidth>(queries, batch, query, head, rows);
      __syncthreads();
      add_turned_product<kWidth>(scores, rows, d, dk);
    }
  }
  store_tile<kWidth>({a.dk, shape.keys, shape.kv_heads, d, shape.strides.dk}, batch, first, group, dk,
                     {1, 1, 1, 1});
  store_tile<kWidth>({a.dv, shape.keys, shape.kv_heads, e, shape.strides.dv}, batch, first, group, dv,
                     {1, 1, 1, 1});
}

void launch_tiles(const device::AttentionGrad& x, const float* means, Stream stream) {
  const device::AttentionShape& shape = x.shape;
  const std::int64_t query_tiles = divide_up(shape.queries, kTile), key_tiles = divide_up(shape.keys, kTile);
  const std::int64_t query_blocks = query_tiles * shape.batch * shape.heads;
  const std::int64_t key_blocks = key_tiles * shape.batch * shape.kv_heads;
  by_width(shape, [&](auto width) {
    constexpr int kQueryBytes = tile_bytes<width>(3, kTile);
    constexpr int kKeyBytes = tile_bytes<width>(3, sizeof(QueryRows) / 4);
    const auto by_queries = query_kernel<width>;
    const auto by_keys = key_kernel<width>;
    cudaFuncSetAttribute(by_queries, cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryBytes);
    cudaFuncSetAttribute(by_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, kKeyBytes);
    if (query_blocks > 0) {
      by_queries<<<static_cast<unsigned>(query_blocks), kTileThreads, kQueryBytes, stream>>>(x, means,
                                                                                             query_tiles);
    }
    if (key_blocks > 0) {
      by_keys<<<static_cast<unsigned>(key_blocks), kTileThreads, kKeyBytes, stream>>>(x, means, key_tiles);
    }
  });
}

}  // namespace

// A mean for each row.
std::int64_t generic_workspace_bytes(const device::AttentionGrad& x) {
  return x.shape.batch * x.shape.heads * x.shape.queries * static_cast<std::int64_t>(sizeof(float));
}

void launch_generic(const device::AttentionGrad& x, std::byte* workspace, Stream stream) {
  float* const means = reinterpret_cast<float*>(workspace);
  const std::int64_t rows = x.shape.batch * x.shape.heads * x.shape.queries;
  const std::int64_t blocks = (rows * 32 + kSumThreads - 1) / kSumThreads;
  if (rows > 0) {
    mean_kernel<<<static_cast<unsigned>(blocks), kSumThreads, 0, stream>>>(x, rows, means);
    check_launch("attention gradient, means");
    if (x.sink.data != nullptr && x.dsink.data != nullptr) {
      sink_kernel<<<static_cast<unsigned>(x.shape.heads), kSumThreads, 0, stream>>>(x, means);
      check_launch("attention gradient, sinks");
    }
  }
  launch_tiles(x, means, stream);
  check_launch("attention gradient");
}

}  // namespace orrery::cuda

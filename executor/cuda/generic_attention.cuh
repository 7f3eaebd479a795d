#pragma once
// Tiles of attention in shared memory: 64 queries by 64 keys, fp32, by 256 threads. Thread (x, y) of 16 × 16
// has rows 4y … 4y + 3 of a product; its columns are x, x + 16, … of scores, and four from 4x, 4x + 64, … of
// heads.

#include <algorithm>
#include <climits>
#include <type_traits>

#include "executor/cuda/generic_device.cuh"

namespace orrery::cuda {

constexpr int kTile = 64;
constexpr int kTileThreads = 256;
constexpr int kScoreStride = kTile + 4;
// A multiple of four that is an odd number of 16 bytes: rows one after the other lie in different banks.
template <int kWidth>
constexpr int kRowStride = kWidth + 4;

// Shared memory of `heads` tiles of rows and one of scores, and `words` more.
template <int kWidth>
constexpr int tile_bytes(int heads, int words) {
  return (heads * kTile * kRowStride<kWidth> + kTile * kScoreStride + words) * 4;
}

// Positions that a query sees.
struct Seen {
  int low = INT_MAX, high = -1;
  __device__ bool sees(int key) const { return key >= low && key <= high; }
};

// Of query `at` (none: beyond the queries).
__device__ inline Seen seen_by(const device::AttentionShape& shape, std::int64_t at) {
  Seen seen;
  if (at >= shape.queries) return seen;
  const std::int64_t position = shape.positions != nullptr ? shape.positions[at] : at;
  std::int64_t low = 0;
  if (shape.window > 0) low = max(low, position - shape.window + 1);
  if (shape.chunk > 0) low = max(low, position / shape.chunk * shape.chunk);
  seen.low = static_cast<int>(low);
  seen.high = shape.causal ? static_cast<int>(position) : INT_MAX;
  return seen;
}

// Of key `at`; beyond the keys one that nobody sees.
__device__ inline int key_position(const device::AttentionShape& shape, std::int64_t at) {
  if (at >= shape.keys) return -1;
  return static_cast<int>(shape.key_positions != nullptr ? shape.key_positions[at] : at);
}

__device__ inline int least_of_warp(int x) { return __reduce_min_sync(kAllLanes, x); }
__device__ inline int largest_of_warp(int x) { return __reduce_max_sync(kAllLanes, x); }

// What the queries of a tile see between them. Every warp works it out for itself.
__device__ inline Seen seen_by_tile(const device::AttentionShape& shape, std::int64_t first) {
  const int lane = threadIdx.x % 32;
  const Seen a = seen_by(shape, first + lane), b = seen_by(shape, first + lane + 32);
  Seen seen;
  seen.low = least_of_warp(min(a.low, b.low));
  seen.high = largest_of_warp(max(a.high, b.high));
  return seen;
}

// Rows [0, rows) of `width`, `stride` elements apart, into a tile; zeros after them and up to `padded`
// columns.
template <class T>
__device__ void load_rows(const T* from, std::int64_t stride, int rows, int width, int padded, float* to,
                          int to_stride) {
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < kTile; row += kTileThreads / 32) {
#pragma unroll 4
    for (int c = lane; c < padded; c += 32) {
      to[row * to_stride + c] = row < rows && c < width ? to_float(from[row * stride + c]) : 0.0f;
    }
  }
}

// One head's rows of [batch, tokens, heads, width], from token `first` of `batch` on. Tokens are `stride`
// apart; 0: dense.
struct HeadRows {
  device::Array array;
  std::int64_t tokens, heads;
  int width;
  std::int64_t stride = 0;
  __device__ std::int64_t token_stride() const { return stride > 0 ? stride : heads * width; }
  __device__ std::int64_t row(std::int64_t batch, std::int64_t token, std::int64_t head) const {
    return (batch * tokens + token) * token_stride() + head * width;
  }
};
template <int kWidth>
__device__ void load_tile(const HeadRows& from, std::int64_t batch, std::int64_t first, std::int64_t head,
                          float* to) {
  const std::int64_t at = from.row(batch, first, head), stride = from.token_stride();
  const int rows = static_cast<int>(min(static_cast<std::int64_t>(kTile), from.tokens - first));
  const int padded = (from.width + 63) / 64 * 64;
  switch (from.array.dtype) {
    case DType::kBf16:
      return load_rows(elements_of<Bf16>(from.array) + at, stride, rows, from.width, padded, to,
                       kRowStride<kWidth>);
    case DType::kFp16:
      return load_rows(elements_of<Fp16>(from.array) + at, stride, rows, from.width, padded, to,
                       kRowStride<kWidth>);
    default:
      return load_rows(elements_of<float>(from.array) + at, stride, rows, from.width, padded, to,
                       kRowStride<kWidth>);
  }
}

// A thread's rows of heads to where they belong, each times its factor.
template <int kWidth>
__device__ void store_tile(const HeadRows& to, std::int64_t batch, std::int64_t first, std::int64_t head,
                           const float (&sums)[4][kWidth / 16], const float (&factors)[4]) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::int64_t token = first + 4 * y + i, row = to.row(batch, token, head);
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      const int column = 4 * (x + j / 4 * 16) + j % 4;
      if (token < to.tokens && column < to.width)
        write_float(to.array, row + column, sums[i][j] * factors[i]);
    }
  }
}

__device__ inline float4 load_four(const float* from) { return *reinterpret_cast<const float4*>(from); }

// sums[i][j] = Σ a[4y + i][c] · b[x + 16j][c] over c < width; columns up to a multiple of four are zeros.
template <int kWidth>
__device__ void scores_of(const float* a, const float* b, int width, float (&sums)[4][4]) {
  const float* left = a + 4 * (threadIdx.x / 16) * kRowStride<kWidth>;
  const float* right = b + threadIdx.x % 16 * kRowStride<kWidth>;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i][j] = 0;
  }
  for (int c = 0; c < width; c += 4) {
    float4 p[4], q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = load_four(left + i * kRowStride<kWidth> + c);
#pragma unroll
    for (int j = 0; j < 4; ++j) q[j] = load_four(right + j * 16 * kRowStride<kWidth> + c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[i][j] = fmaf(p[i].x, q[j].x, sums[i][j]);
        sums[i][j] = fmaf(p[i].y, q[j].y, sums[i][j]);
        sums[i][j] = fmaf(p[i].z, q[j].z, sums[i][j]);
        sums[i][j] = fmaf(p[i].w, q[j].w, sums[i][j]);
      }
    }
  }
}

// sums[i][…] += weight[i] · row[…]: one row of a tile, of which the thread has its columns.
template <int kWidth>
__device__ void add_row(const float* row, int width, const float (&weight)[4],
                        float (&sums)[4][kWidth / 16]) {
#pragma unroll
  for (int j = 0; j < kWidth / 64; ++j) {
    if (64 * j >= width) continue;
    const float4 v = load_four(row + 4 * (threadIdx.x % 16) + 64 * j);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i][4 * j] = fmaf(weight[i], v.x, sums[i][4 * j]);
      sums[i][4 * j + 1] = fmaf(weight[i], v.y, sums[i][4 * j + 1]);
      sums[i][4 * j + 2] = fmaf(weight[i], v.z, sums[i][4 * j + 2]);
      sums[i][4 * j + 3] = fmaf(weight[i], v.w, sums[i][4 * j + 3]);
    }
  }
}

// sums[i] += Σ scores[4y + i][k] · rows[k] over the tile's 64.
template <int kWidth>
__device__ void add_product(const float* scores, const float* rows, int width,
                            float (&sums)[4][kWidth / 16]) {
  const float* left = scores + 4 * (threadIdx.x / 16) * kScoreStride;
  for (int k = 0; k < kTile; k += 4) {
    float4 p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) p[i] = load_four(left + i * kScoreStride + k);
    const float* row = rows + k * kRowStride<kWidth>;
    add_row<kWidth>(row, width, {p[0].x, p[1].x, p[2].x, p[3].x}, sums);
    add_row<kWidth>(row + kRowStride<kWidth>, width, {p[0].y, p[1].y, p[2].y, p[3].y}, sums);
    add_row<kWidth>(row + 2 * kRowStride<kWidth>, width, {p[0].z, p[1].z, p[2].z, p[3].z}, sums);
    add_row<kWidth>(row + 3 * kRowStride<kWidth>, width, {p[0].w, p[1].w, p[2].w, p[3].w}, sums);
  }
}

// sums[i] += Σ scores[k][4y + i] · rows[k] over the tile's 64.
template <int kWidth>
__device__ void add_turned_product(const float* scores, const float* rows, int width,
                                   float (&sums)[4][kWidth / 16]) {
  const float* left = scores + 4 * (threadIdx.x / 16);
#pragma unroll 4
  for (int k = 0; k < kTile; ++k) {
    const float4 p = load_four(left + k * kScoreStride);
    add_row<kWidth>(rows + k * kRowStride<kWidth>, width, {p.x, p.y, p.z, p.w}, sums);
  }
}

// A thread's scores into a tile of them.
__device__ inline void store_scores(const float (&values)[4][4], float* scores) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) scores[(4 * y + i) * kScoreStride + x + 16 * j] = values[i][j];
  }
}

__device__ inline float capped(const device::AttentionShape& shape, float product) {
  const float score = shape.scale * product;
  return shape.softcap > 0 ? shape.softcap * tanhf(score / shape.softcap) : score;
}
// What a score's gradient becomes on its way to the product of query and key.
__device__ inline float through_cap(const device::AttentionShape& shape, float score) {
  if (!(shape.softcap > 0)) return shape.scale;
  const float t = score / shape.softcap;
  return (1 - t * t) * shape.scale;
}

// Runs f(std::integral_constant<int, width>) of the narrowest tiles that both widths of heads fit into.
template <class F>
void by_width(const device::AttentionShape& shape, F f) {
  const std::int64_t widest = std::max(shape.d, shape.e);
  if (widest <= 64) return f(std::integral_constant<int, 64>{});
  if (widest <= 128) return f(std::integral_constant<int, 128>{});
  if (widest <= 256) return f(std::integral_constant<int, 256>{});
  refuse("attention", "heads can be 256 wide at most");
}

}  // namespace orrery::cuda

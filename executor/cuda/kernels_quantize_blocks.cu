// Copies of matrices in FP8 (E4M3) with scales for blocks of 128 elements, or of 128 × 128. A block of
// threads has a tile of 128 × 128 in its registers, finds the largest elements that it needs, and writes the
// tile as it lies, turned, or both ways: memory is read once.

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_quantize.cuh"

namespace orrery::cuda {
namespace {

using device::Fp8Scales;

constexpr int kTile = 128;
static_assert(kTile == device::kFp8Block);
constexpr int kVector = 8;  // Columns of a thread, and rows.
constexpr int kAcross = kTile / kVector;
constexpr int kThreads = kAcross * kAcross;
constexpr int kWarps = kThreads / kWarp;

using Vector = Packed<Bf16, kVector>;

struct Matrix {
  const Bf16* x;
  std::int64_t rows, width, stride;
};

// Where copies and scales go; no address: not wanted. Scales of a row of blocks stand a stride apart: of
// kRows those of one block after those of another, of kSquares each line of squares after the other.
struct Copies {
  std::byte *to, *turned;
  float *scale, *turned_scale;
  std::int64_t scale_stride, turned_scale_stride;
};

// A thread's 8 × 8 elements: columns 8 · across …, rows 8 · down … of the tile.
struct Place {
  int across, down;
  std::int64_t row, column;  // Of the matrix.
};

__device__ __forceinline__ float clamped(float largest) { return fmaxf(largest, kLeastLargest); }
__device__ __forceinline__ float factor_of(float largest) { return kLargestE4m3 / largest; }
__device__ __forceinline__ float scale_of(float largest) { return largest / kLargestE4m3; }

// Of one row, among the threads that have parts of it: 16 neighbours.
__device__ __forceinline__ float row_largest(float most) {
#pragma unroll
  for (int lane = kAcross / 2; lane > 0; lane /= 2)
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, lane));
  return most;
}

__device__ __forceinline__ float absolute(const Vector& vector, int c) {
  return fabsf(to_float(vector.at[c]));
}

// As it lies, each row by its factor.
__device__ __forceinline__ void write_straight(const Vector (&in)[kVector], const float (&factors)[kVector],
                                               const Place& place, const Matrix& matrix, std::byte* to) {
#pragma unroll
  for (int r = 0; r < kVector; ++r) {
    const auto scaled = [&](int c) { return to_float(in[r].at[c]) * factors[r]; };
    std::uint32_t words[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      words[h] = pair_of(scaled(4 * h), scaled(4 * h + 1), __NV_E4M3) |
                 pair_of(scaled(4 * h + 2), scaled(4 * h + 3), __NV_E4M3) << 16;
    }
    *reinterpret_cast<uint2*>(to + (place.row + r) * matrix.width + place.column) =
        make_uint2(words[0], words[1]);
  }
}

// Turned tiles go through shared memory by column, 128 bytes each: eight rows of a column at a place mixed
// with the column's vector, so that neither stores (16 vectors at once) nor loads (8 pairs of one column)
// meet in a bank.
__device__ __forceinline__ void tile_in(const Vector (&in)[kVector], const float (&factors)[kVector],
                                        const Place& place, std::byte* tile) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    std::uint32_t words[2][4];  // By upper and lower rows: rows of four columns, then columns of four rows.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const auto scaled = [&](int c) {
          return to_float(in[4 * half + r].at[4 * h + c]) * factors[4 * h + c];
        };
        words[half][r] = pair_of(scaled(0), scaled(1), __NV_E4M3) | pair_of(scaled(2), scaled(3), __NV_E4M3)
                                                                        << 16;
      }
      turn(words[half]);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int column = place.across * kVector + 4 * h + c;
      const int at = column * kTile + (place.down ^ place.across) * kVector;
      *reinterpret_cast<uint2*>(tile + at) = make_uint2(words[0][c], words[1][c]);
    }
  }
}

__device__ __forceinline__ void tile_out(const std::byte* tile, std::int64_t row, std::int64_t column,
                                         const Matrix& matrix, std::byte* to) {
  constexpr int kStored = 16, kChunks = kTile / kStored;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  if (row + chunk * kStored >= matrix.rows) return;
#pragma unroll
  for (int c = static_cast<int>(threadIdx.x) / kChunks; c < kTile; c += kThreads / kChunks) {
    if (column + c >= matrix.width) return;
    const int mixed = c / kVector;
    auto codes = *reinterpret_cast<const uint4*>(tile + c * kTile + (chunk ^ mixed / 2) * kStored);
    if (mixed % 2 == 1) codes = make_uint4(codes.z, codes.w, codes.x, codes.y);
    *reinterpret_cast<uint4*>(to + (column + c) * matrix.rows + row + chunk * kStored) = codes;
  }
}

template <Fp8Scales kScales, bool kStraight, bool kTurned>
__global__ void __launch_bounds__(kThreads) quantize_blocks_kernel(const Matrix matrix, const Copies copies) {
  __shared__ alignas(16) std::byte tile[kTurned ? kTile * kTile : 16];
  __shared__ float shared[kWarps][kTile];
  const std::int64_t row = blockIdx.y * std::int64_t{kTile}, column = blockIdx.x * std::int64_t{kTile};
  Place place;
  place.across = static_cast<int>(threadIdx.x) % kAcross,
  place.down = static_cast<int>(threadIdx.x) / kAcross;
  place.row = row + place.down * kVector, place.column = column + place.across * kVector;
  // Sizes are multiples of 16: a thread has all of its elements or none.
  const bool inside = place.row < matrix.rows && place.column < matrix.width;
  Vector in[kVector] = {};
  if (inside) {
#pragma unroll
    for (int r = 0; r < kVector; ++r)
      in[r] = load_packed<kVector>(matrix.x + (place.row + r) * matrix.stride + place.column);
  }

  float row_factors[kVector], column_factors[kVector];
  if constexpr (kScales == Fp8Scales::kSquares) {
    float most = 0;
#pragma unroll
    for (int r = 0; r < kVector; ++r) {
#pragma unroll
      for (int c = 0; c < kVector; ++c) most = fmaxf(most, absolute(in[r], c));
    }
    most = clamped(block_max<kWarps>(most, shared[0]));
#pragma unroll
    for (int i = 0; i < kVector; ++i) row_factors[i] = column_factors[i] = factor_of(most);
    if (threadIdx.x == 0) {
      if (kStraight) copies.scale[blockIdx.y * copies.scale_stride + blockIdx.x] = scale_of(most);
      if (kTurned) copies.turned_scale[blockIdx.x * copies.turned_scale_stride + blockIdx.y] = scale_of(most);
    }
  }
  if constexpr (kScales == Fp8Scales::kRows && kStraight) {
#pragma unroll
    for (int r = 0; r < kVector; ++r) {
      float most = 0;
#pragma unroll
      for (int c = 0; c < kVector; ++c) most = fmaxf(most, absolute(in[r], c));
      most = clamped(row_largest(most));
      row_factors[r] = factor_of(most);
      if (place.across == r && place.row < matrix.rows)
        copies.scale[blockIdx.x * copies.scale_stride + place.row + r] = scale_of(most);
    }
  }
  if constexpr (kScales == Fp8Scales::kRows && kTurned) {
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      float most = 0;
#pragma unroll
      for (int r = 0; r < kVector; ++r) most = fmaxf(most, absolute(in[r], c));
      // The other half of the warp has the next eight rows.
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, kAcross));
      column_factors[c] = most;
    }
    if (threadIdx.x % kWarp < kAcross) {
#pragma unroll
      for (int c = 0; c < kVector; ++c)
        shared[threadIdx.x / kWarp][c * kAcross + place.across] = column_factors[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      float most = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) most = fmaxf(most, shared[warp][c * kAcross + place.across]);
      most = clamped(most);
      column_factors[c] = factor_of(most);
      if (place.down == c && place.column < matrix.width)
        copies.turned_scale[blockIdx.y * copies.turned_scale_stride + place.column + c] = scale_of(most);
    }
  }

  if (kStraight && inside) write_straight(in, row_factors, place, matrix, copies.to);
  if constexpr (kTurned) {
    tile_in(in, column_factors, place, tile);
    __syncthreads();
    tile_out(tile, row, column, matrix, copies.turned);
  }
}

template <Fp8Scales kScales>
auto kernel_for(bool straight, bool turned) {
  if (straight && turned) return quantize_blocks_kernel<kScales, true, true>;
  return straight ? quantize_blocks_kernel<kScales, true, false>
                  : quantize_blocks_kernel<kScales, false, true>;
}

}  // namespace

void quantize_blocks(const device::Quantize& q, Stream stream) {
  if (q.e5m2) refuse("quantize", "blocks are E4M3");
  const std::int64_t down = device::fp8_blocks(q.rows), across = device::fp8_blocks(q.width);
  constexpr std::int64_t kMostDown = 65535;
  if (down > kMostDown) refuse("quantize", "blocks go to 8,388,480 rows");
  const bool squares = q.scales == Fp8Scales::kSquares;
  const Copies copies = {q.to,
                         q.turned,
                         q.scale,
                         q.turned_scale,
                         squares ? device::fp8_square_stride(q.width) : q.rows,
                         squares ? device::fp8_square_stride(q.rows) : q.width};
  const auto kernel = squares ? kernel_for<Fp8Scales::kSquares>(q.to != nullptr, q.turned != nullptr)
                              : kernel_for<Fp8Scales::kRows>(q.to != nullptr, q.turned != nullptr);
  const dim3 tiles(static_cast<unsigned>(across), static_cast<unsigned>(down));
  kernel<<<tiles, kThreads, 0, stream>>>({typed<const Bf16>(q.x.data), q.rows, q.width, q.stride}, copies);
  check_launch("quantize blocks");
}

}  // namespace orrery::cuda

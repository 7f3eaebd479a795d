// Copies in FP8 that are turned, or have scales for blocks of 128 elements or of 128 × 128. A block of
// threads has a tile of 128 × 128 in its registers, finds the largest elements that it needs, and writes the
// tile as it lies, turned, or both ways: memory is read once.

#include "executor/cuda/kernels_quantize.cuh"

namespace orrery::cuda {
namespace {

constexpr int kTile = 128;
static_assert(kTile == kFp8Block);
constexpr int kVector = 8;  // Columns of a thread, and rows.
constexpr int kPairs = kVector / 2;
constexpr int kAcross = kTile / kVector;
constexpr int kWarps = kQuantizeThreads / kWarp;
static_assert(kQuantizeThreads == kAcross * kAcross);

using Vector = Packed<Bf16, kVector>;
using Pair = __nv_bfloat162;

struct Matrix {
  const Bf16* x;
  std::int64_t rows, width, stride;
};

// Where copies and scales of blocks go; no address: not wanted. kRows: scales of one block of rows stand a
// stride behind those of the one before; kSquares: so do lines of squares.
struct Copies {
  std::byte *to, *turned;
  float *scale, *turned_scale;
  std::int64_t scale_stride, turned_scale_stride;
};

// A thread's 8 × 8 elements: columns 8 · across …, rows 8 · down … of the tile.
struct Place {
  int across, down;
  std::int64_t tile_row, tile_column;  // In tiles.
  std::int64_t row, column;            // In elements, of the thread's first.
};

// ---- Largest elements, as bf16, of which maxima are exact.

__device__ __forceinline__ Pair absolute(const Vector& vector, int pair) {
  return __habs2(reinterpret_cast<const Pair*>(vector.at)[pair]);
}
__device__ __forceinline__ Pair from_lane(Pair x, int across) {
  const unsigned bits = __shfl_xor_sync(kAllLanes, *reinterpret_cast<unsigned*>(&x), across);
  return *reinterpret_cast<const Pair*>(&bits);
}

// Of each of the thread's rows in the whole tile: 16 neighbours have parts of them.
__device__ __forceinline__ void rows_largest(const Vector (&in)[kVector], float (&largest)[kVector]) {
  Pair rows[kPairs];
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    Pair two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      two[i] = absolute(in[2 * p + i], 0);
#pragma unroll
      for (int c = 1; c < kPairs; ++c) two[i] = __hmax2(two[i], absolute(in[2 * p + i], c));
    }
    rows[p] = __hmax2(__lows2bfloat162(two[0], two[1]), __highs2bfloat162(two[0], two[1]));
#pragma unroll
    for (int lane = kAcross / 2; lane > 0; lane /= 2) rows[p] = __hmax2(rows[p], from_lane(rows[p], lane));
    largest[2 * p] = __low2float(rows[p]), largest[2 * p + 1] = __high2float(rows[p]);
  }
}

// Of each of the thread's columns in its own rows and those of the other half of its warp.
__device__ __forceinline__ void columns_largest(const Vector (&in)[kVector], Pair (&largest)[kPairs]) {
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    largest[p] = absolute(in[0], p);
#pragma unroll
    for (int r = 1; r < kVector; ++r) largest[p] = __hmax2(largest[p], absolute(in[r], p));
    largest[p] = __hmax2(largest[p], from_lane(largest[p], kAcross));
  }
}

struct alignas(16) FourPairs {
  Pair at[kPairs];
};

// Of each of the thread's columns in the whole tile.
__device__ __forceinline__ void columns_largest_of_tile(const Vector (&in)[kVector], const Place& place,
                                                        float (&largest)[kVector]) {
  __shared__ FourPairs shared[kWarps][kAcross];
  FourPairs columns;
  columns_largest(in, columns.at);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp < kAcross) shared[warp][place.across] = columns;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const FourPairs other = shared[w][place.across];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) columns.at[p] = __hmax2(columns.at[p], other.at[p]);
  }
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    largest[2 * p] = __low2float(columns.at[p]);
    largest[2 * p + 1] = __high2float(columns.at[p]);
  }
}

__device__ __forceinline__ float largest_of_tile(const Vector (&in)[kVector]) {
  __shared__ float shared[kWarps];
  Pair columns[kPairs];
  columns_largest(in, columns);
  const Pair most = __hmax2(__hmax2(columns[0], columns[1]), __hmax2(columns[2], columns[3]));
  return block_max<kWarps>(fmaxf(__low2float(most), __high2float(most)), shared);
}

// ---- Factors of the thread's rows, and of its columns in a turned copy. Their scales are written.

struct Factors {
  float rows[kVector], columns[kVector];
  __device__ __forceinline__ void set(float factor) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) rows[i] = columns[i] = factor;
  }
};

// Scale beside factor; zeros have some.
__device__ __forceinline__ float factor_of_block(float largest, float* scale) {
  largest = fmaxf(largest, kLeastLargest);
  if (scale != nullptr) *scale = largest / kLargestE4m3;
  return kLargestE4m3 / largest;
}

__device__ __forceinline__ void find_square(const Vector (&in)[kVector], const Place& place,
                                            const Copies& copies, Factors& factors) {
  const bool first = threadIdx.x == 0;
  const float most = largest_of_tile(in);
  factors.set(factor_of_block(most, nullptr));
  if (first && copies.to != nullptr)
    factor_of_block(most, copies.scale + place.tile_row * copies.scale_stride + place.tile_column);
  if (first && copies.turned != nullptr)
    factor_of_block(most,
                    copies.turned_scale + place.tile_column * copies.turned_scale_stride + place.tile_row);
}

template <bool kStraight, bool kTurned>
__device__ __forceinline__ void find_rows(const Vector (&in)[kVector], const Place& place,
                                          const Matrix& matrix, const Copies& copies, Factors& factors) {
  if constexpr (kStraight) {
    rows_largest(in, factors.rows);
#pragma unroll
    for (int r = 0; r < kVector; ++r) {
      const bool writes = place.across == r && place.row < matrix.rows;
      float* const scale = copies.scale + place.tile_column * copies.scale_stride + place.row + r;
      factors.rows[r] = factor_of_block(factors.rows[r], writes ? scale : nullptr);
    }
  }
  if constexpr (kTurned) {
    columns_largest_of_tile(in, place, factors.columns);
#pragma unroll
    for (int c = 0; c < kVector; ++c) {
      const bool writes = place.down == c && place.column < matrix.width;
      float* const scale =
          copies.turned_scale + place.tile_row * copies.turned_scale_stride + place.column + c;
      factors.columns[c] = factor_of_block(factors.columns[c], writes ? scale : nullptr);
    }
  }
}

// ---- Copies.

// As it lies, each row by its factor.
__device__ __forceinline__ void write_straight(const Vector (&in)[kVector], const Factors& factors,
                                               const Place& place, std::int64_t width,
                                               __nv_fp8_interpretation_t kind, std::byte* to) {
#pragma unroll
  for (int r = 0; r < kVector; ++r) {
    const auto scaled = [&](int c) { return to_float(in[r].at[c]) * factors.rows[r]; };
    const std::uint32_t low = pair_of(scaled(0), scaled(1), kind) | pair_of(scaled(2), scaled(3), kind) << 16,
                        high = pair_of(scaled(4), scaled(5), kind) | pair_of(scaled(6), scaled(7), kind)
                                                                         << 16;
    *reinterpret_cast<uint2*>(to + (place.row + r) * width + place.column) = make_uint2(low, high);
  }
}

// Turned tiles go through shared memory by column, 128 bytes each: eight rows of a column at a place mixed
// with the column's vector, so that neither stores (16 vectors at once) nor loads (8 pairs of one column)
// meet in a bank.
__device__ __forceinline__ void tile_in(const Vector (&in)[kVector], const Factors& factors,
                                        const Place& place, __nv_fp8_interpretation_t kind, std::byte* tile) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    std::uint32_t words[2][4];  // By upper and lower rows: rows of four columns, then columns of four rows.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const auto scaled = [&](int c) {
          return to_float(in[4 * half + r].at[4 * h + c]) * factors.columns[4 * h + c];
        };
        words[half][r] = pair_of(scaled(0), scaled(1), kind) | pair_of(scaled(2), scaled(3), kind) << 16;
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

__device__ __forceinline__ void tile_out(const std::byte* tile, const Place& place, const Matrix& matrix,
                                         std::byte* to) {
  constexpr int kStored = 16, kChunks = kTile / kStored;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const std::int64_t row = place.tile_row * kTile + chunk * kStored, column = place.tile_column * kTile;
  if (row >= matrix.rows) return;
#pragma unroll
  for (int c = static_cast<int>(threadIdx.x) / kChunks; c < kTile; c += kQuantizeThreads / kChunks) {
    if (column + c >= matrix.width) return;
    const int mixed = c / kVector;
    auto codes = *reinterpret_cast<const uint4*>(tile + c * kTile + (chunk ^ mixed / 2) * kStored);
    if (mixed % 2 == 1) codes = make_uint4(codes.z, codes.w, codes.x, codes.y);
    *reinterpret_cast<uint4*>(to + (column + c) * matrix.rows + row) = codes;
  }
}

// Of a multiprocessor: with more registers than that leaves a thread they would be fewer.
constexpr int kTileBlocks = 4;

// The last tile first: a search for the largest element has just left the matrix's end in the cache.
template <Fp8Scales kScales, bool kStraight, bool kTurned>
__global__ void __launch_bounds__(kQuantizeThreads, kTileBlocks)
    quantize_tile_kernel(const Matrix matrix, const Copies copies, const Largest largest, const Fp8Kind fp8) {
  __shared__ alignas(16) std::byte tile[kTurned ? kTile * kTile : 16];
  Place place;
  place.across = static_cast<int>(threadIdx.x) % kAcross,
  place.down = static_cast<int>(threadIdx.x) / kAcross;
  place.tile_row = gridDim.y - 1 - blockIdx.y, place.tile_column = gridDim.x - 1 - blockIdx.x;
  place.row = place.tile_row * kTile + place.down * kVector;
  place.column = place.tile_column * kTile + place.across * kVector;
  // Sizes are multiples of 16: a thread has all of its elements or none.
  const bool inside = place.row < matrix.rows && place.column < matrix.width;
  Vector in[kVector] = {};
  if (inside) {
#pragma unroll
    for (int r = 0; r < kVector; ++r)
      in[r] = load_packed<kVector>(matrix.x + (place.row + r) * matrix.stride + place.column);
  }
  Factors factors;
  if constexpr (kScales == Fp8Scales::kOne) {
    const float factor = factor_of(largest, fp8);
    factors.set(factor);
#pragma unroll
    for (int r = 0; r < kVector; ++r) make_again(in[r]);
  }
  if constexpr (kScales == Fp8Scales::kSquares) find_square(in, place, copies, factors);
  if constexpr (kScales == Fp8Scales::kRows) {
    find_rows<kStraight, kTurned>(in, place, matrix, copies, factors);
  }
  if (kStraight && inside) write_straight(in, factors, place, matrix.width, fp8.kind, copies.to);
  if constexpr (kTurned) {
    tile_in(in, factors, place, fp8.kind, tile);
    __syncthreads();
    tile_out(tile, place, matrix, copies.turned);
  }
}

template <Fp8Scales kScales>
auto kernel_for(bool straight, bool turned) {
  if (straight && turned) return quantize_tile_kernel<kScales, true, true>;
  return straight ? quantize_tile_kernel<kScales, true, false> : quantize_tile_kernel<kScales, false, true>;
}
auto kernel_for(const device::Quantize& q) {
  const bool straight = q.to != nullptr, turned = q.turned != nullptr;
  switch (q.scales) {
    case Fp8Scales::kRows: return kernel_for<Fp8Scales::kRows>(straight, turned);
    case Fp8Scales::kSquares: return kernel_for<Fp8Scales::kSquares>(straight, turned);
    case Fp8Scales::kOne: break;
  }
  // As it lies alone: kernels_quantize.cu.
  return straight ? quantize_tile_kernel<Fp8Scales::kOne, true, true>
                  : quantize_tile_kernel<Fp8Scales::kOne, false, true>;
}

}  // namespace

void quantize_tiles(const device::Quantize& q, const Largest& largest, Stream stream) {
  if (q.scales != Fp8Scales::kOne && q.e5m2) refuse("quantize", "blocks are E4M3");
  const std::int64_t down = fp8_blocks(q.rows), across = fp8_blocks(q.width);
  constexpr std::int64_t kMostDown = 65535;
  if (down > kMostDown) refuse("quantize", "the matrix has more than 8,388,480 rows");
  const bool squares = q.scales == Fp8Scales::kSquares;
  const Copies copies = {q.to,
                         q.turned,
                         q.scale,
                         q.turned_scale,
                         squares ? fp8_square_stride(q.width) : q.rows,
                         squares ? fp8_square_stride(q.rows) : q.width};
  const dim3 tiles(static_cast<unsigned>(across), static_cast<unsigned>(down));
  kernel_for(q)<<<tiles, kQuantizeThreads, 0, stream>>>(
      {typed<const Bf16>(q.x.data), q.rows, q.width, q.stride}, copies, largest, fp8_kind(q));
  check_launch("quantize tiles");
}

}  // namespace orrery::cuda

// Copies of matrices in FP8, with the scale that follows from their largest element (those with scales for
// blocks: kernels_quantize_blocks.cu). Maxima don't depend on
// their order, so that a launch repeats bit by bit.

#include <algorithm>

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_quantize.cuh"

namespace orrery::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kVector = 8;   // Elements of a 16-byte load.
constexpr int kUnroll = 4;   // Loads of a thread that are under way at once.
constexpr int kStored = 16;  // Elements of a 16-byte store.

using Vector = Packed<Bf16, kVector>;

// Vectors of the matrix by their number, row by row.
struct Matrix {
  const Bf16* x;
  std::int64_t stride;
  std::uint32_t row_vectors;
  bool flat;  // Rows follow one another without a gap.

  __device__ __forceinline__ const Bf16* at(std::uint32_t vector) const {
    if (flat) return x + static_cast<std::int64_t>(vector) * kVector;
    const std::uint32_t row = vector / row_vectors;
    return x + static_cast<std::int64_t>(row) * stride +
           static_cast<std::int64_t>(vector - row * row_vectors) * kVector;
  }
};

__device__ __forceinline__ float largest_of(const Vector& vector) {
  const Floats<kVector> x = unpack<kVector>(vector);
  float most = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) most = fmaxf(most, fabsf(x.at[i]));
  return most;
}

// One partial maximum a block.
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const Matrix matrix, std::uint32_t vectors, float* partials) {
  __shared__ float shared[kWarps];
  const std::uint32_t step = gridDim.x * kThreads;
  float most = 0;
  for (std::uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < vectors; i += kUnroll * step) {
    Vector in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      // The thread's first vector once more where there is no other.
      const std::uint32_t j = i + u * step;
      in[u] = load_packed<kVector>(matrix.at(j < vectors ? j : i));
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) most = fmaxf(most, largest_of(in[u]));
  }
  most = block_max<kWarps>(most, shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = most;
}

struct Format {
  __nv_fp8_interpretation_t kind;
  float largest;
};

// Where the largest element stands, in parts, and where it and the scale go.
struct Largest {
  const float* parts;
  int count;
  float *scale, *to;  // to: or none.
};

// What elements are multiplied by; all threads of the block get it, and the first block writes its inverse.
__device__ __forceinline__ float factor_of(const Largest& largest, const Format& format) {
  __shared__ float shared[kWarps];
  float most = kLeastLargest;
  for (int i = static_cast<int>(threadIdx.x); i < largest.count; i += kThreads)
    most = fmaxf(most, largest.parts[i]);
  most = block_max<kWarps>(most, shared);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *largest.scale = most / format.largest;
    if (largest.to != nullptr) *largest.to = most;
  }
  return format.largest / most;
}

// Copies begin at the matrix's end, which the search for the largest element has just left in the cache.

// 16 elements of a thread at once, as they lie.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const Matrix matrix, std::uint32_t vectors, const Largest largest, const Format format,
                    std::byte* to) {
  const float factor = factor_of(largest, format);
  const std::uint32_t step = gridDim.x * kThreads * 2;
  for (std::uint32_t i = (blockIdx.x * kThreads + threadIdx.x) * 2; i < vectors; i += step) {
    const std::uint32_t vector = vectors - 2 - i;  // A row has an even number of them.
    const Floats<kStored> x = load<kStored>(matrix.at(vector));
    Sixteen codes;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      codes.word[w] = pair_of(x.at[4 * w] * factor, x.at[4 * w + 1] * factor, format.kind) |
                      pair_of(x.at[4 * w + 2] * factor, x.at[4 * w + 3] * factor, format.kind) << 16;
    }
    *reinterpret_cast<Sixteen*>(to + static_cast<std::int64_t>(vector) * kVector) = codes;
  }
}

// ---- Turned. A tile of kTileRows · kTileColumns goes through shared memory by column: word g of column c
// has rows 4g … 4g + 3. Chunks of four words (16 rows) stand at places mixed with the column's vector, c / 8,
// so that neither the stores by word (a warp: one chunk, eight vectors) nor the loads by chunk (eight lanes:
// one column, eight chunks) meet in a bank.

constexpr int kTileRows = 128, kTileColumns = 64;
constexpr int kColumnWords = kTileRows / 4;
constexpr int kChunkRows = 16;
static_assert(kTileColumns / kVector * (kTileRows / 4) == kThreads);

__device__ __forceinline__ int chunk_at(int column, int chunk) {
  return column * kColumnWords + (chunk ^ (column / kVector)) * 4;
}

// Where a tile begins, and the matrix's sizes.
struct TilePlace {
  std::int64_t rows, width, row, column;
};

// Four rows of a thread's vector of columns: as they lie to `to`, or none, and as words by column to the
// tile. Rows and widths are multiples of 16, so that a thread's rows are all inside or all outside.
template <bool kBoth>
__device__ __forceinline__ void tile_in(const Matrix& matrix, const TilePlace& place, float factor,
                                        __nv_fp8_interpretation_t kind, std::byte* to, std::uint32_t* tile) {
  const int vector = static_cast<int>(threadIdx.x) % (kTileColumns / kVector);
  const int group = static_cast<int>(threadIdx.x) / (kTileColumns / kVector);
  const std::int64_t row = place.row + 4 * group, column = place.column + vector * kVector;
  if (row >= place.rows || column >= place.width) return;
  Vector in[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) in[r] = load_packed<kVector>(matrix.x + (row + r) * matrix.stride + column);
  std::uint32_t words[2][4];  // By half of the vector and row.
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const auto scaled = [&](int c) { return to_float(in[r].at[4 * h + c]) * factor; };
      words[h][r] = pair_of(scaled(0), scaled(1), kind) | pair_of(scaled(2), scaled(3), kind) << 16;
    }
    if (kBoth) {
      *reinterpret_cast<uint2*>(to + (row + r) * place.width + column) = make_uint2(words[0][r], words[1][r]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    turn(words[h]);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      tile[chunk_at(vector * kVector + 4 * h + c, group / 4) + group % 4] = words[h][c];
  }
}

__device__ __forceinline__ void tile_out(const std::uint32_t* tile, const TilePlace& place, std::byte* to) {
  constexpr int kChunks = kTileRows / kChunkRows;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const std::int64_t row = place.row + chunk * kChunkRows;
  if (row >= place.rows) return;
  for (int c = static_cast<int>(threadIdx.x) / kChunks; c < kTileColumns; c += kThreads / kChunks) {
    if (place.column + c >= place.width) return;
    *reinterpret_cast<Sixteen*>(to + (place.column + c) * place.rows + row) =
        *reinterpret_cast<const Sixteen*>(tile + chunk_at(c, chunk));
  }
}

// Blocks that a multiprocessor holds at once; registers for both copies leave room for fewer.
constexpr int kBlocks = 2048 / kThreads;
template <bool kBoth>
constexpr int kTurnedBlocks = kBoth ? 6 : kBlocks;

// Turned, and as it lies too if `kBoth`.
template <bool kBoth>
__global__ void __launch_bounds__(kThreads, kTurnedBlocks<kBoth>)
    quantize_turned_kernel(const Matrix matrix, std::int64_t rows, std::int64_t width, const Largest largest,
                           const Format format, std::byte* to, std::byte* turned) {
  __shared__ alignas(16) std::uint32_t tile[kTileColumns * kColumnWords];
  const float factor = factor_of(largest, format);
  const std::int64_t across = (width + kTileColumns - 1) / kTileColumns;
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows * across;
  for (std::int64_t i = tiles - 1 - blockIdx.x; i >= 0; i -= gridDim.x) {
    const TilePlace place = {rows, width, i / across * kTileRows, i % across * kTileColumns};
    tile_in<kBoth>(matrix, place, factor, format.kind, to, tile);
    __syncthreads();
    tile_out(tile, place, turned);
    __syncthreads();
  }
}

// As many as are there at once or fewer, each with as much work, as far as that goes.
int blocks_for(std::int64_t work, int of_multiprocessor = kBlocks) {
  const std::int64_t rounds = divide_up(work, std::int64_t{multiprocessors()} * of_multiprocessor);
  return static_cast<int>(divide_up(work, rounds));
}
int partials_of(const device::Quantize& q) {
  return blocks_for(divide_up(q.rows * q.width, std::int64_t{kVector} * kUnroll * kThreads));
}

void check_sizes(const device::Quantize& q) {
  if (q.x.dtype != DType::kBf16) refuse("quantize", "it reads bf16 alone");
  const bool sixteens =
      q.width % kStored == 0 && q.stride % kStored == 0 &&
      ((q.turned == nullptr && q.scales == device::Fp8Scales::kOne) || q.rows % kStored == 0) &&
      all_aligned({q.x.data, q.to, q.turned});
  if (!sixteens) refuse("quantize", "sizes, stride and addresses have to be multiples of 16");
  constexpr std::int64_t kMostVectors = std::int64_t{1} << 30;
  if (q.rows * q.width / kVector > kMostVectors) refuse("quantize", "the matrix has more than 2^33 elements");
}

}  // namespace

std::int64_t workspace_bytes(const device::Quantize& q) {
  const bool searches = q.known_largest == nullptr && q.scales == device::Fp8Scales::kOne;
  return searches ? 4 * partials_of(q) : 0;
}

void launch(const device::Quantize& q, const std::byte*, std::byte* workspace, Stream stream) {
  if (q.rows == 0 || q.width == 0) return;
  check_sizes(q);
  if (q.scales != device::Fp8Scales::kOne) return quantize_blocks(q, stream);
  const Matrix matrix = {typed<const Bf16>(q.x.data), q.stride, static_cast<std::uint32_t>(q.width / kVector),
                         q.stride == q.width};
  const auto vectors = static_cast<std::uint32_t>(q.rows * q.width / kVector);
  const Format format = q.e5m2 ? Format{__NV_E5M2, kLargestE5m2} : Format{__NV_E4M3, kLargestE4m3};
  Largest largest = {q.known_largest, 1, q.scale, q.largest};
  if (q.known_largest == nullptr) {
    auto* const partials = typed<float>(workspace);
    largest.parts = partials, largest.count = partials_of(q);
    largest_kernel<<<largest.count, kThreads, 0, stream>>>(matrix, vectors, partials);
    check_launch("largest");
  }
  if (q.turned == nullptr) {
    const int blocks = blocks_for(divide_up(q.rows * q.width, std::int64_t{kStored} * kThreads));
    quantize_kernel<<<blocks, kThreads, 0, stream>>>(matrix, vectors, largest, format, q.to);
  } else {
    const bool both = q.to != nullptr;
    const int blocks = blocks_for(divide_up(q.rows, kTileRows) * divide_up(q.width, kTileColumns),
                                  both ? kTurnedBlocks<true> : kTurnedBlocks<false>);
    const auto kernel = both ? quantize_turned_kernel<true> : quantize_turned_kernel<false>;
    kernel<<<blocks, kThreads, 0, stream>>>(matrix, q.rows, q.width, largest, format, q.to, q.turned);
  }
  check_launch("quantize");
}

}  // namespace orrery::cuda

// Copies of matrices in FP8: the search for the largest element, and copies with one scale that lie as the
// matrix does (others: kernels_quantize_tiles.cu). Maxima don't depend on their order, so that a launch
// repeats bit by bit.

#include "executor/cuda/kernels_quantize.cuh"

namespace orrery::cuda {
namespace {

constexpr int kThreads = kQuantizeThreads;
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

// Copies begin at the matrix's end, which the search for the largest element has just left in the cache.

// 16 elements of a thread at once, as they lie.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const Matrix matrix, std::uint32_t vectors, const Largest largest, const Fp8Kind fp8,
                    std::byte* to) {
  const float factor = factor_of(largest, fp8);
  const std::uint32_t step = gridDim.x * kThreads * 2;
  for (std::uint32_t i = (blockIdx.x * kThreads + threadIdx.x) * 2; i < vectors; i += step) {
    const std::uint32_t vector = vectors - 2 - i;  // A row has an even number of them.
    const Floats<kStored> x = load<kStored>(matrix.at(vector));
    const auto word = [&](int w) {
      return pair_of(x.at[4 * w] * factor, x.at[4 * w + 1] * factor, fp8.kind) |
             pair_of(x.at[4 * w + 2] * factor, x.at[4 * w + 3] * factor, fp8.kind) << 16;
    };
    *reinterpret_cast<uint4*>(to + static_cast<std::int64_t>(vector) * kVector) =
        make_uint4(word(0), word(1), word(2), word(3));
  }
}

// As many as are there at once or fewer, each with as much work, as far as that goes.
int blocks_for(std::int64_t work) {
  constexpr int kBlocks = 2048 / kThreads;  // Of a multiprocessor.
  const std::int64_t rounds = divide_up(work, std::int64_t{multiprocessors()} * kBlocks);
  return static_cast<int>(divide_up(work, rounds));
}
int partials_of(const device::Quantize& q) {
  return blocks_for(divide_up(q.rows * q.width, std::int64_t{kVector} * kUnroll * kThreads));
}

void check_sizes(const device::Quantize& q) {
  if (q.x.dtype != DType::kBf16) refuse("quantize", "it reads bf16 alone");
  const bool sixteens = q.width % kStored == 0 && q.stride % kStored == 0 &&
                        ((q.turned == nullptr && q.scales == Fp8Scales::kOne) || q.rows % kStored == 0) &&
                        all_aligned({q.x.data, q.to, q.turned});
  if (!sixteens) refuse("quantize", "sizes, stride and addresses have to be multiples of 16");
  constexpr std::int64_t kMostVectors = std::int64_t{1} << 30;
  if (q.rows * q.width / kVector > kMostVectors) refuse("quantize", "the matrix has more than 2^33 elements");
}

}  // namespace

std::int64_t workspace_bytes(const device::Quantize& q) {
  const bool searches = q.known_largest == nullptr && q.scales == Fp8Scales::kOne;
  return searches ? 4 * partials_of(q) : 0;
}

void launch(const device::Quantize& q, const std::byte*, std::byte* workspace, Stream stream) {
  if (q.rows == 0 || q.width == 0) return;
  check_sizes(q);
  if (q.scales != Fp8Scales::kOne) return quantize_tiles(q, {}, stream);
  const Matrix matrix = {typed<const Bf16>(q.x.data), q.stride, static_cast<std::uint32_t>(q.width / kVector),
                         q.stride == q.width};
  const auto vectors = static_cast<std::uint32_t>(q.rows * q.width / kVector);
  Largest largest = {q.known_largest, 1, q.scale, q.largest};
  if (q.known_largest == nullptr) {
    auto* const partials = typed<float>(workspace);
    largest.parts = partials, largest.count = partials_of(q);
    largest_kernel<<<largest.count, kThreads, 0, stream>>>(matrix, vectors, partials);
    check_launch("largest");
  }
  if (q.turned != nullptr) return quantize_tiles(q, largest, stream);
  const int blocks = blocks_for(divide_up(q.rows * q.width, std::int64_t{kStored} * kThreads));
  quantize_kernel<<<blocks, kThreads, 0, stream>>>(matrix, vectors, largest, fp8_kind(q), q.to);
  check_launch("quantize");
}

}  // namespace orrery::cuda

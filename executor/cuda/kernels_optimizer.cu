// AdamW over all of a rank's parameters in one launch, and the sum of squares that clipping asks for. Both
// take pieces of arrays from a table (kernels_tables.hpp).

#include "executor/cuda/kernels.hpp"
#include "executor/cuda/kernels_device.cuh"
#include "executor/cuda/kernels_tables.hpp"

namespace orrery::cuda {
namespace {

constexpr int kUpdateThreads = 256;

struct Factors {
  float gradient_scale, beta1, rest1, beta2, rest2, minus_step, inverse_bias2, epsilon, keep;
};

// As host::Performer scales gradients: the coefficient is at most 1, and 1e-6 keeps it finite.
__device__ __forceinline__ Factors factors_of(const device::StepScalars& s, const double* norm_squared,
                                              bool decays) {
  double scale = s.gradient_scale;
  if (s.clip_norm > 0 && norm_squared != nullptr) {
    const double clip = s.clip_norm / (sqrt(*norm_squared) * scale + 1e-6);
    if (clip < 1) scale *= clip;
  }
  return {static_cast<float>(scale),
          s.beta1,
          s.rest1,
          s.beta2,
          s.rest2,
          -s.step_size,
          s.inverse_bias2,
          s.epsilon,
          decays ? 1 - s.decay : 1.0f};
}

// N elements from i on, operation by operation as executor/kernels/loops_body.hpp has them.
template <int N, class G, class W>
__device__ __forceinline__ void update(const UpdateEntry& e, const Factors& f, std::int64_t i) {
  const Floats<N> gradient = load<N>(static_cast<const G*>(e.gradient) + i);
  Floats<N> m = load<N>(e.first_moment + i), v = load<N>(e.second_moment + i), w = load<N>(e.master + i);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float g = __fmul_rn(gradient.at[j], f.gradient_scale);
    m.at[j] = fmaf(f.beta1, m.at[j], __fmul_rn(f.rest1, g));
    v.at[j] = fmaf(f.beta2, v.at[j], __fmul_rn(__fmul_rn(f.rest2, g), g));
    const float move = m.at[j] / fmaf(sqrtf(v.at[j]), f.inverse_bias2, f.epsilon);
    w.at[j] = fmaf(f.minus_step, move, __fmul_rn(f.keep, w.at[j]));
  }
  store(e.first_moment + i, m);
  store(e.second_moment + i, v);
  store(e.master + i, w);
  if constexpr (sizeof(W) == 2) store(static_cast<W*>(e.weights) + i, w);
}

template <class G, class W>
__device__ __forceinline__ void update_piece(const UpdateEntry& e, const Factors& f, std::int64_t first,
                                             std::int64_t last) {
  constexpr int N = 4;
  std::int64_t i = first + static_cast<std::int64_t>(threadIdx.x) * N;
  if (e.wide) {
    for (; i + N <= last; i += kUpdateThreads * N) update<N, G, W>(e, f, i);
    for (; i < last; ++i) update<1, G, W>(e, f, i);  // Of the thread whose four aren't whole.
  } else {
    for (i = first + threadIdx.x; i < last; i += kUpdateThreads) update<1, G, W>(e, f, i);
  }
}

// float as W: nothing but the master weights.
template <class G>
__device__ __forceinline__ void update_weights(const UpdateEntry& e, const Factors& f, std::int64_t first,
                                               std::int64_t last) {
  if (e.weights == nullptr) return update_piece<G, float>(e, f, first, last);
  if (e.weights_type == static_cast<std::int32_t>(DType::kBf16))
    return update_piece<G, Bf16>(e, f, first, last);
  update_piece<G, Fp16>(e, f, first, last);
}

__global__ void __launch_bounds__(kUpdateThreads)
    adamw_kernel(const UpdateEntry* entries, const Piece* pieces, const device::StepScalars* scalars,
                 const double* norm_squared) {
  const Piece piece = pieces[blockIdx.x];
  const UpdateEntry e = entries[piece.array];
  const Factors f = factors_of(*scalars, norm_squared, e.decays);
  const std::int64_t first = piece.index * kUpdatePiece;
  const std::int64_t last = first + kUpdatePiece < e.elements ? first + kUpdatePiece : e.elements;
  switch (static_cast<DType>(e.gradient_type)) {
    case DType::kBf16: return update_weights<Bf16>(e, f, first, last);
    case DType::kFp16: return update_weights<Fp16>(e, f, first, last);
    default: return update_weights<float>(e, f, first, last);
  }
}

// ---- Sum of squares.

template <class T>
__device__ __forceinline__ float squares_of(const SquaresEntry& e, std::int64_t first, std::int64_t last) {
  constexpr int N = kWide<T>;
  const T* const x = static_cast<const T*>(e.data);
  float sum = 0;
  if (!e.wide) {
    for (std::int64_t i = first + threadIdx.x; i < last; i += kUpdateThreads) {
      const float v = to_float(x[i]);
      sum = fmaf(v, v, sum);
    }
    return sum;
  }
  std::int64_t i = first + static_cast<std::int64_t>(threadIdx.x) * N;
  Floats<N> sums = {};  // A sum for each place of an access: short chains.
#pragma unroll 4
  for (; i + N <= last; i += kUpdateThreads * N) {
    const Floats<N> v = load<N>(x + i);
#pragma unroll
    for (int j = 0; j < N; ++j) sums.at[j] = fmaf(v.at[j], v.at[j], sums.at[j]);
  }
  for (; i < last; ++i) {
    const float v = to_float(x[i]);
    sum = fmaf(v, v, sum);
  }
#pragma unroll
  for (int j = 0; j < N; ++j) sum += sums.at[j];
  return sum;
}

__global__ void __launch_bounds__(kUpdateThreads)
    squares_kernel(const SquaresEntry* entries, const Piece* pieces, double* partials) {
  __shared__ double shared[kUpdateThreads / kWarp];
  const Piece piece = pieces[blockIdx.x];
  const SquaresEntry e = entries[piece.array];
  const std::int64_t first = piece.index * kSquaresPiece;
  const std::int64_t last = first + kSquaresPiece < e.elements ? first + kSquaresPiece : e.elements;
  float sum = 0;
  switch (static_cast<DType>(e.type)) {
    case DType::kBf16: sum = squares_of<Bf16>(e, first, last); break;
    case DType::kFp16: sum = squares_of<Fp16>(e, first, last); break;
    default: sum = squares_of<float>(e, first, last); break;
  }
  const double all = block_sum<kUpdateThreads / kWarp>(static_cast<double>(sum), shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = all;
}

constexpr int kLastThreads = 1024;

__global__ void __launch_bounds__(kLastThreads)
    squares_sum(const double* partials, std::int64_t count, double* to) {
  __shared__ double shared[kLastThreads / kWarp];
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kLastThreads) sum += partials[i];
  sum = block_sum<kLastThreads / kWarp>(sum, shared);
  if (threadIdx.x == 0) *to = sum;
}

}  // namespace

void launch(const device::AdamW& update, const std::byte* table, std::byte*, Stream stream) {
  const std::int64_t pieces = pieces_of(update);
  if (pieces == 0) return;
  adamw_kernel<<<static_cast<unsigned>(pieces), kUpdateThreads, 0, stream>>>(
      reinterpret_cast<const UpdateEntry*>(table),
      reinterpret_cast<const Piece*>(table + pieces_offset(update)), update.scalars, update.norm_squared);
  check_launch("adamw");
}

void launch(const device::SumSquares& sum, const std::byte* table, std::byte* workspace, Stream stream) {
  const std::int64_t pieces = pieces_of(sum);
  auto* const partials = typed<double>(workspace);
  if (pieces > 0) {
    squares_kernel<<<static_cast<unsigned>(pieces), kUpdateThreads, 0, stream>>>(
        reinterpret_cast<const SquaresEntry*>(table),
        reinterpret_cast<const Piece*>(table + pieces_offset(sum)), partials);
    check_launch("sum_squares");
  }
  squares_sum<<<1, kLastThreads, 0, stream>>>(partials, pieces, sum.to);
  check_launch("sum_squares");
}

}  // namespace orrery::cuda

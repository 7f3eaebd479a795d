#pragma once
// How the scales of an FP8 matrix lie, as cuBLASLt reads them on Hopper: plans set memory apart by it,
// kernels write it.

#include <cstdint>

namespace orrery {

// Of a matrix [outer, inner] whose inner dimension a product sums over.
enum class Fp8Scales : std::uint8_t {
  kOne,
  kRows,     // One for each 128 of a row: [⌈inner / 128⌉, outer].
  kSquares,  // One for each 128 × 128: [⌈outer / 128⌉, ⌈inner / 128⌉ rounded up to a multiple of 4].
};
inline constexpr std::int64_t kFp8Block = 128;

inline std::int64_t fp8_blocks(std::int64_t elements) { return (elements + kFp8Block - 1) / kFp8Block; }
// From one row of squares to the next.
inline std::int64_t fp8_square_stride(std::int64_t inner) {
  constexpr std::int64_t kPadded = 4;
  return (fp8_blocks(inner) + kPadded - 1) / kPadded * kPadded;
}

inline std::int64_t fp8_scale_count(Fp8Scales scales, std::int64_t outer, std::int64_t inner) {
  switch (scales) {
    case Fp8Scales::kOne: break;
    case Fp8Scales::kRows: return fp8_blocks(inner) * outer;
    case Fp8Scales::kSquares: return fp8_blocks(outer) * fp8_square_stride(inner);
  }
  return 1;
}

}  // namespace orrery

#pragma once
// Floating-point types narrower than fp32, as codes. Decoding is exact. Encoding rounds to nearest, halves to
// even; beyond the largest number BF16 and FP16 give infinities (IEEE 754), the FP8 types their largest
// number, for infinities too (OCP 8-bit Floating Point Specification 1.0, saturating). A NaN stays one, with
// its sign.

#include <cstddef>
#include <cstdint>

#include "base/dtype.hpp"

namespace orrery::host {

enum class FloatFormat : std::uint8_t { kFp32, kBf16, kFp16, kE4m3, kE5m2 };
std::size_t code_bytes(FloatFormat format);

// The formats of Program's types; kFp8 is E5M2 in gradients and E4M3 elsewhere (Micikevicius et al. 2022).
// REQUIRES: a floating-point type.
FloatFormat format_of(DType type, bool gradient);

// n codes at `from` to floats and back. REQUIRES: no overlap, except the same place for kFp32.
void decode(FloatFormat format, const std::byte* from, float* to, std::size_t n);
void encode(FloatFormat format, const float* from, std::byte* to, std::size_t n);

}  // namespace orrery::host

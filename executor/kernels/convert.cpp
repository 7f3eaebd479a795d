#include "executor/kernels/convert.hpp"

#include <bit>
#include <cassert>
#include <cstring>
#include <limits>

namespace orrery::host {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000u, kMagnitude = 0x7FFFFFFFu;

float bf16_value(std::uint16_t code) { return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16); }

std::uint16_t bf16_code(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;  // Quiet: a payload in the low half alone would get lost.
  return static_cast<std::uint16_t>((bits & kMagnitude) > kInfinity ? nan : rounded);
}

// A sign, kExponent bits of exponent and kMantissa of mantissa. kFinite: as E4M3, where the highest exponent
// is one of numbers too, and only its last code is a NaN.
template <typename Code, int kExponent, int kMantissa, bool kFinite, bool kSaturates>
struct Narrow {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1, kShift = 23 - kMantissa;
  static constexpr std::uint32_t kSign = 1u << (kExponent + kMantissa);
  static constexpr std::uint32_t kTop = ((1u << kExponent) - 1)
                                        << kMantissa;  // Infinity, where there is one.
  static constexpr std::uint32_t kLargest = kFinite ? kSign - 2 : kTop - 1;
  static constexpr std::uint32_t kNan = kFinite ? kSign - 1 : kTop | (1u << (kMantissa - 1));
  static constexpr std::uint32_t kTooLarge = kSaturates ? kLargest : kTop;
  // What is added to a magnitude below the normal numbers so that the float's last digit is worth as much as
  // the code's: the sum rounds as it should.
  static constexpr std::uint32_t kSubnormal = static_cast<std::uint32_t>(127 + 23 + 1 - kBias - kMantissa)
                                              << 23;
  static constexpr std::uint32_t kFirstNormal = static_cast<std::uint32_t>(127 + 1 - kBias) << 23;

  static float value(Code code) {
    const std::uint32_t magnitude = code & (kSign - 1), sign = static_cast<std::uint32_t>(code & kSign);
    // The digits in the place of a float's, with an exponent too small by what the biases differ in.
    const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 127 - kBias) << 23);
    const std::uint32_t number =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << kShift) * scale);
    const std::uint32_t special = kInfinity | (magnitude << kShift);
    const bool is_special = kFinite ? magnitude == kNan : magnitude >= kTop;
    return std::bit_cast<float>((is_special ? special : number) | (sign << (31 - kExponent - kMantissa)));
  }

  static Code code(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & kMagnitude;
    const std::uint32_t sign = (bits >> (31 - kExponent - kMantissa)) & kSign;
    const std::uint32_t half = (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1u);
    const std::uint32_t normal =
        ((magnitude + half) >> kShift) - (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kSubnormal);
    std::uint32_t result = magnitude < kFirstNormal ? std::bit_cast<std::uint32_t>(sum) - kSubnormal : normal;
    if (magnitude >= kFirstNormal && normal > kLargest) result = kTooLarge;
    if (magnitude > kInfinity) result = kNan;
    return static_cast<Code>(result | sign);
  }
};

using Fp16 = Narrow<std::uint16_t, 5, 10, false, false>;
using E4m3 = Narrow<std::uint8_t, 4, 3, true, true>;
using E5m2 = Narrow<std::uint8_t, 5, 2, false, true>;

template <typename Code, typename F>
void decode_all(const std::byte* from, float* to, std::size_t n, F value) {
  for (std::size_t i = 0; i < n; ++i) {
    Code code;
    std::memcpy(&code, from + i * sizeof(Code), sizeof(Code));
    to[i] = value(code);
  }
}

template <typename Code, typename F>
void encode_all(const float* from, std::byte* to, std::size_t n, F code_of) {
  for (std::size_t i = 0; i < n; ++i) {
    const Code code = code_of(from[i]);
    std::memcpy(to + i * sizeof(Code), &code, sizeof(Code));
  }
}

}  // namespace

std::size_t code_bytes(FloatFormat format) {
  switch (format) {
    case FloatFormat::kFp32: return 4;
    case FloatFormat::kBf16:
    case FloatFormat::kFp16: return 2;
    case FloatFormat::kE4m3:
    case FloatFormat::kE5m2: return 1;
  }
  return 0;
}

FloatFormat format_of(DType type, bool gradient) {
  switch (type) {
    case DType::kFp32:
    case DType::kTf32: return FloatFormat::kFp32;
    case DType::kBf16: return FloatFormat::kBf16;
    case DType::kFp16: return FloatFormat::kFp16;
    case DType::kFp8: return gradient ? FloatFormat::kE5m2 : FloatFormat::kE4m3;
    case DType::kInt64:
    case DType::kInt32:
    case DType::kUint8: break;
  }
  assert(false && "a type of whole numbers");
  return FloatFormat::kFp32;
}

void decode(FloatFormat format, const std::byte* from, float* to, std::size_t n) {
  switch (format) {
    case FloatFormat::kFp32:
      if (n > 0) std::memmove(to, from, n * sizeof(float));
      return;
    case FloatFormat::kBf16: return decode_all<std::uint16_t>(from, to, n, bf16_value);
    case FloatFormat::kFp16: return decode_all<std::uint16_t>(from, to, n, Fp16::value);
    case FloatFormat::kE4m3: return decode_all<std::uint8_t>(from, to, n, E4m3::value);
    case FloatFormat::kE5m2: return decode_all<std::uint8_t>(from, to, n, E5m2::value);
  }
}

void encode(FloatFormat format, const float* from, std::byte* to, std::size_t n) {
  switch (format) {
    case FloatFormat::kFp32:
      if (n > 0) std::memmove(to, from, n * sizeof(float));
      return;
    case FloatFormat::kBf16: return encode_all<std::uint16_t>(from, to, n, bf16_code);
    case FloatFormat::kFp16: return encode_all<std::uint16_t>(from, to, n, Fp16::code);
    case FloatFormat::kE4m3: return encode_all<std::uint8_t>(from, to, n, E4m3::code);
    case FloatFormat::kE5m2: return encode_all<std::uint8_t>(from, to, n, E5m2::code);
  }
}

}  // namespace orrery::host

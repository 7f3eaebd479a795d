#include <limits>

#include "tests/executor/kernel_cases.hpp"

using namespace orrery;
using namespace orrery::test;
using host::FloatFormat;

namespace {

template <typename Code>
float value(FloatFormat format, Code code) {
  float x = 0;
  host::decode(format, reinterpret_cast<const std::byte*>(&code), &x, 1);
  return x;
}

template <typename Code>
Code code_of(FloatFormat format, float x) {
  Code code = 0;
  host::encode(format, &x, reinterpret_cast<std::byte*>(&code), 1);
  return code;
}

// Exponent and mantissa as the format's definition says; the highest exponent is the caller's.
double by_definition(unsigned code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(code & ((1u << mantissa_bits) - 1), -mantissa_bits);
  const double sign = code >> (exponent_bits + mantissa_bits) ? -1 : 1;
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

// All codes: their values, back again, and the rounding of what lies between two of them.
template <typename Code>
void check_format(FloatFormat format, int exponent_bits, int mantissa_bits, Code largest) {
  const unsigned count = 1u << (8 * sizeof(Code));
  std::vector<unsigned> wrong;
  const auto expect = [&](bool right, unsigned code) {
    if (!right) wrong.push_back(code);
  };
  for (unsigned c = 0; c < count; ++c) {
    const Code code = static_cast<Code>(c);
    const float x = value(format, code);
    if (std::isnan(x)) {
      expect(std::isnan(value(format, code_of<Code>(format, x))), c);
      continue;
    }
    const Code magnitude = static_cast<Code>(c & (count / 2 - 1));
    if (std::isinf(x)) {  // Beyond the largest, to which FP8 goes back.
      const Code back = static_cast<Code>(sizeof(Code) == 1 ? c - magnitude + largest : c);
      expect(code_of<Code>(format, x) == back, c);
      continue;
    }
    expect(code_of<Code>(format, x) == code, c);
    expect(static_cast<double>(x) == by_definition(c, exponent_bits, mantissa_bits), c);
    if (magnitude >= largest) continue;
    // The middle between this and the next goes to the even one, what lies beside the middle to the nearer.
    const float next = value(format, static_cast<Code>(code + 1));
    const float middle = static_cast<float>((static_cast<double>(x) + static_cast<double>(next)) / 2);
    expect(code_of<Code>(format, middle) == static_cast<Code>(code + code % 2), c);
    expect(code_of<Code>(format, std::nextafter(middle, x)) == code, c);
    expect(code_of<Code>(format, std::nextafter(middle, next)) == static_cast<Code>(code + 1), c);
  }
  CHECK(wrong == std::vector<unsigned>{});
}

}  // namespace

TEST_CASE("all codes of the narrow types convert exactly and round to even", "[kernels][convert]") {
  check_format<std::uint16_t>(FloatFormat::kBf16, 8, 7, 0x7F7F);
  check_format<std::uint16_t>(FloatFormat::kFp16, 5, 10, 0x7BFF);
  check_format<std::uint8_t>(FloatFormat::kE4m3, 4, 3, 0x7E);
  check_format<std::uint8_t>(FloatFormat::kE5m2, 5, 2, 0x7B);
}

TEST_CASE("what is too large becomes infinite, or the largest number of an FP8 type", "[kernels][convert]") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(code_of<std::uint16_t>(FloatFormat::kBf16, 3.4e38f) == 0x7F80);
  CHECK(code_of<std::uint16_t>(FloatFormat::kFp16, 65519) == 0x7BFF);  // Rounds to 65504.
  CHECK(code_of<std::uint16_t>(FloatFormat::kFp16, 65520) == 0x7C00);  // Half way to 65536.
  CHECK(code_of<std::uint16_t>(FloatFormat::kFp16, -inf) == 0xFC00);
  CHECK(value(FloatFormat::kE4m3, std::uint8_t{0x7E}) == 448);
  CHECK(value(FloatFormat::kE5m2, std::uint8_t{0x7B}) == 57344);
  CHECK(code_of<std::uint8_t>(FloatFormat::kE4m3, 1000) == 0x7E);
  CHECK(code_of<std::uint8_t>(FloatFormat::kE4m3, -inf) == 0xFE);
  CHECK(code_of<std::uint8_t>(FloatFormat::kE5m2, 1e6f) == 0x7B);
  CHECK(code_of<std::uint8_t>(FloatFormat::kE5m2, inf) == 0x7B);
  CHECK(std::isnan(value(FloatFormat::kE4m3, code_of<std::uint8_t>(FloatFormat::kE4m3, std::nanf("")))));
  CHECK(std::isinf(value(FloatFormat::kE5m2, std::uint8_t{0x7C})));
}

TEST_CASE("FP8 is E5M2 in gradients and E4M3 elsewhere", "[kernels][convert]") {
  CHECK(host::format_of(DType::kFp8, true) == FloatFormat::kE5m2);
  CHECK(host::format_of(DType::kFp8, false) == FloatFormat::kE4m3);
  CHECK(host::format_of(DType::kTf32, false) == FloatFormat::kFp32);
}

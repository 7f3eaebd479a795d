#include "executor/kernels/exact_sum.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace orrery::host {
namespace {

constexpr std::uint64_t kLimbMask = 0xFFFFFFFFu;
constexpr int kLowest = -298;  // The square of the smallest float, 2^−149.

}  // namespace

void ExactSum::add_at(std::uint64_t mantissa, unsigned exponent) {
  const unsigned bit = 2 * exponent, limb = bit / 32, shift = bit % 32;
  const std::uint64_t low = (mantissa & kLimbMask) << shift, high = (mantissa >> 32) << shift;
  words_[limb] += static_cast<std::int64_t>(low & kLimbMask);
  words_[limb + 1] += static_cast<std::int64_t>((low >> 32) + (high & kLimbMask));
  words_[limb + 2] += static_cast<std::int64_t>(high >> 32);
}

void ExactSum::carry() {
  for (std::size_t i = 0; i + 1 < kLimbs; ++i) {
    words_[i + 1] += words_[i] >> 32;
    words_[i] &= static_cast<std::int64_t>(kLimbMask);
  }
}

// Squares of one exponent are whole numbers below 2^48, of which 2^16 fit in one of 64 bits. Four sets take
// turns, so that an element needn't wait for the one before.
void ExactSum::add_squares(const float* x, std::size_t n) {
  constexpr std::size_t kSets = 4, kBlock = kSets << 16;
  for (std::size_t first = 0; first < n; first += kBlock) {
    std::uint64_t sums[kSets][256] = {};
    const std::size_t end = std::min(n, first + kBlock);
    for (std::size_t i = first; i < end; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(x[i]);
      const std::uint32_t exponent = (bits >> 23) & 0xFFu;
      const std::uint64_t mantissa = (bits & 0x7FFFFFu) | (exponent == 0 ? 0u : 0x800000u);
      sums[i % kSets][exponent] += mantissa * mantissa;
    }
    for (auto& set : sums) {
      for (unsigned exponent = 0; exponent < 255; ++exponent) {
        // Subnormal numbers have the exponent of the smallest normal ones.
        if (set[exponent] != 0) add_at(set[exponent], exponent == 0 ? 0 : exponent - 1);
      }
    }
    for (std::size_t i = first; i < end; ++i) words_[kLimbs] += std::isfinite(x[i]) ? 0 : 1;
    carry();
  }
}

void ExactSum::add(const ExactSum& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] += other.words_[i];
  carry();
}

double ExactSum::value() const {
  if (!finite()) return std::numeric_limits<double>::quiet_NaN();
  std::size_t top = kLimbs;
  while (top > 0 && words_[top - 1] == 0) --top;
  if (top == 0) return 0;
  // The highest 64 bits, the last of which tells whether anything lies below: 11 more than a double has.
  const auto limb = [&](std::size_t below) {
    return top > below ? static_cast<std::uint64_t>(words_[top - 1 - below]) : 0;
  };
  const int space = std::countl_zero(static_cast<std::uint32_t>(limb(0)));
  std::uint64_t bits = (limb(0) << 32 | limb(1)) << space;
  bits |= limb(2) >> (32 - space);
  std::uint64_t below = (limb(2) << space) & kLimbMask;
  for (std::size_t i = 3; i < top; ++i) below |= limb(i);
  if (below != 0) bits |= 1;
  // The conversion rounds to nearest even; the power of two is exact.
  return std::ldexp(static_cast<double>(bits), kLowest + static_cast<int>(top) * 32 - 64 - space);
}

}  // namespace orrery::host

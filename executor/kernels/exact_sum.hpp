#pragma once
// The sum of squares of floats, exactly: a fixed-point number wide enough for all of them (Kulisch's
// accumulator). Its bits depend on neither order nor grouping, so a gradient's norm is the same however the
// gradient is divided over ranks.

#include <array>
#include <cstddef>
#include <cstdint>

namespace orrery::host {

class ExactSum {
 public:
  // Squares lie between 2^−298 and 2^256; 32 bits a limb, the lowest first, and room for 2^64 of the largest.
  static constexpr std::size_t kLimbs = 20;
  // The limbs, then how many elements were infinite or no number. Sums of several sums' words, word by word
  // (an all-reduce over up to 2^31 ranks), are the words of the sum.
  using Words = std::array<std::int64_t, kLimbs + 1>;

  ExactSum() = default;
  explicit ExactSum(const Words& words) : words_(words) { carry(); }

  void add_squares(const float* x, std::size_t n);
  void add(const ExactSum& other);
  // Every limb in [0, 2^32).
  const Words& words() const { return words_; }

  // Rounded once, to nearest even; NaN where any element was infinite or no number.
  double value() const;
  bool finite() const { return words_[kLimbs] == 0; }

 private:
  // mantissa · 2^(2 · exponent − 298). REQUIRES: limbs in [0, 2^62).
  void add_at(std::uint64_t mantissa, unsigned exponent);
  void carry();

  Words words_ = {};
};

}  // namespace orrery::host

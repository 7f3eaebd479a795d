#pragma once
// Simulated time: a whole number of picoseconds, so that sums don't depend on their order and one
// input gives one Timeline, bit for bit. An int64 holds ±106 days.

#include <cassert>
#include <cmath>
#include <compare>
#include <cstdint>

namespace orrery {

struct SimTime {
  std::int64_t picoseconds = 0;

  constexpr auto operator<=>(const SimTime&) const = default;
  constexpr SimTime& operator+=(SimTime other) { return picoseconds += other.picoseconds, *this; }
  constexpr SimTime& operator-=(SimTime other) { return picoseconds -= other.picoseconds, *this; }
  constexpr double seconds() const { return static_cast<double>(picoseconds) * 1e-12; }
};

constexpr SimTime operator+(SimTime a, SimTime b) { return {a.picoseconds + b.picoseconds}; }
constexpr SimTime operator-(SimTime a, SimTime b) { return {a.picoseconds - b.picoseconds}; }
constexpr SimTime operator*(std::int64_t n, SimTime t) { return {n * t.picoseconds}; }

// Rounds to the nearest picosecond. The one place where a cost formula's double becomes time.
inline SimTime from_seconds(double seconds) {
  assert(std::isfinite(seconds) && std::abs(seconds) < 9e6);
  return {std::llround(seconds * 1e12)};
}

namespace time_literals {
constexpr SimTime operator""_ps(unsigned long long n) { return {static_cast<std::int64_t>(n)}; }
constexpr SimTime operator""_ns(unsigned long long n) {
  return 1'000 * SimTime{static_cast<std::int64_t>(n)};
}
constexpr SimTime operator""_us(unsigned long long n) {
  return 1'000'000 * SimTime{static_cast<std::int64_t>(n)};
}
constexpr SimTime operator""_ms(unsigned long long n) {
  return 1'000'000'000 * SimTime{static_cast<std::int64_t>(n)};
}
}  // namespace time_literals

}  // namespace orrery

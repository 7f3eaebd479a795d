#pragma once
// The whole numbers in which the event engine keeps what is left of a compute or a transfer, so that
// settling it twice or once gives the same date.

#include <cstdint>
#include <limits>

#include "simulator/max_min.hpp"

namespace orrery::fast {

// Work per picosecond while a transfer slows the device; at full speed it is interference factor times as
// much, which rounds the factor by less than 1e-9. A job whose devices change speed has a finer one, so that
// a thousandth of it is still as exact.
inline constexpr std::int64_t kSlowSpeed = std::int64_t{1} << 30;
inline constexpr std::int64_t kFineSlowSpeed = std::int64_t{1} << 50;

inline constexpr std::int64_t kPicosecondsPerSecond = 1'000'000'000'000;

// A date that nothing may reach: SimTime ends there.
inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// When `left` is used up at `speed` per picosecond from `now`, rounded up to the picosecond.
inline std::int64_t date_of_end(std::int64_t now, Wide left, std::int64_t speed) {
  if (speed == 0) return kForever;
  const Wide date = now + (left + speed - 1) / speed;
  return date < kForever ? static_cast<std::int64_t>(date) : kForever;
}

}  // namespace orrery::fast

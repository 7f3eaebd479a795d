#pragma once
// The whole numbers in which the event engine keeps what is left of a compute or a transfer, so that
// settling it twice or once gives the same date.

#include <cstdint>
#include <limits>

#include "simulator/max_min.hpp"

namespace orrery::fast {

// Work per picosecond while a transfer slows the device; at full speed it is interference factor times as
// much, which rounds the factor by less than 1e-9.
inline constexpr std::int64_t kSlowSpeed = std::int64_t{1} << 30;

inline constexpr std::int64_t kPicosecondsPerSecond = 1'000'000'000'000;

// A date that nothing may reach: SimTime ends there.
inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// When `left` is used up at `speed` per picosecond from `now`, rounded up to the picosecond.
inline std::int64_t date_of_end(std::int64_t now, Wide left, std::int64_t speed) {
  const Wide date = now + (left + speed - 1) / speed;
  return date < kForever ? static_cast<std::int64_t>(date) : kForever;
}

}  // namespace orrery::fast

#include "executor/device/tuning.hpp"

#include <cassert>

namespace orrery::device {

std::string kept_key(const std::string& key, Tuning tuning) {
  return tuning == Tuning::kQuick ? key + ", quick" : key;
}

std::size_t best_of(std::span<const AlgorithmTime> times) {
  constexpr double kAsFast = 0.003;
  assert(!times.empty());
  std::size_t fastest = 0;
  for (std::size_t i = 1; i < times.size(); ++i) {
    if (times[i].microseconds < times[fastest].microseconds) fastest = i;
  }
  std::size_t best = fastest;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const bool as_fast = times[i].microseconds <= times[fastest].microseconds * (1 + kAsFast);
    const bool known = times[i].millijoules > 0 && times[best].millijoules > 0;
    if (as_fast && known && times[i].millijoules < times[best].millijoules) best = i;
  }
  return best;
}

}  // namespace orrery::device

#pragma once
// Calls of a communication library and the launches around them, performed on host memory for all ranks of a
// group at once.

#include <cstdint>
#include <string>
#include <vector>

#include "executor/device/lower_exchange.hpp"

namespace orrery::test {

// One rank's part in one exchange.
struct Participant {
  RankId rank;
  device::LoweredExchange exchange;
  std::vector<device::Group> groups;
};

// Performs it: "" or what is wrong with it, in a sentence.
std::string perform(const std::vector<Participant>& participants);

}  // namespace orrery::test

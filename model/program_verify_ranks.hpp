#pragma once
// The part of verify(program) that compares ranks with each other.

#include <string>
#include <vector>

#include "model/program.hpp"

namespace orrery {

// Sends without their receive and collectives that members of a group see differently; each fault names
// the first pair of ranks that shows it.
// REQUIRES: ids in range, each rank in at most one group of an axis.
std::vector<std::string> verify_communication(const Program& program);

}  // namespace orrery

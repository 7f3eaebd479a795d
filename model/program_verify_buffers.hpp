#pragma once
// The part of verify(program) about buffers that take over another's memory (Buffer::in_place_of).

#include <string>
#include <vector>

#include "model/program.hpp"

namespace orrery {

// Those that can't be in the other's place, and those whose other is touched after they have begun, in issue
// order. Whether streams keep to that order is the memory plan's to verify. REQUIRES: ids in range, but for
// in_place_of.
std::vector<std::string> verify_in_place(const Program& program, const Role& role);

}  // namespace orrery

#pragma once
// Programs of every shape, sound or not in what ranks say to each other, for tests of the text form.

#include <cstdint>

#include "model/program.hpp"

namespace orrery {

// Ids are in range, names are unique and dependencies point backward; nothing else is promised.
Program random_program(std::uint64_t seed);

}  // namespace orrery

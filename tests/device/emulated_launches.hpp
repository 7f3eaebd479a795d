#pragma once
// Launches as plain loops.

#include "executor/device/launch.hpp"

namespace orrery::test {

// THROWS std::runtime_error for a kind that isn't emulated.
void perform(const device::Launch& launch);

}  // namespace orrery::test

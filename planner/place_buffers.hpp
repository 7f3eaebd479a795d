#pragma once
// A Program whose buffers have addresses: what a backend needs to run it.

#include <vector>

#include "model/program.hpp"
#include "planner/memory_plan.hpp"

namespace orrery {

// Plans the memory of every role and writes the offsets into its buffers. Comes back with the plans, by role.
// THROWS Error(kRuntime) when a plan breaks its own rules, which is a fault of orrery. REQUIRES:
// verify(program) is empty.
std::vector<MemoryPlan> place_buffers(Program& program);

}  // namespace orrery

#pragma once
// Where a rank's memory goes: its peak by category, its course over the step, what a memory plan makes of it,
// and what allocators would.

#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "planner/allocator.hpp"
#include "planner/memory.hpp"
#include "planner/memory_plan.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

struct RoleMemory {
  RoleId role;
  PeakMemory peak;
  std::vector<MemoryPoint> course;  // The highest of each of kCourseColumns equal windows of the step.
  MemoryPlan plan;
  std::vector<AllocatorUse> allocators;  // Own memory, caching, memory plan.
  // Buffers of one step that aren't persistent, and all their bytes: what would be needed if none shared.
  std::int64_t buffers = 0, buffer_bytes = 0;
};
inline constexpr std::size_t kCourseColumns = 72;

RoleMemory role_memory(const Program& program, RoleId role);

// A role's figures, its curve and its allocators.
std::string to_table(const RoleMemory& memory, const Scenario& scenario, const Program& program);
// One object; docs/user-guide has its keys. `offsets`: with every buffer's place in the plan.
std::string to_json(const std::vector<RoleMemory>& roles, const Scenario& scenario, const Program& program,
                    bool offsets);

}  // namespace orrery

#pragma once
// How much memory a Program needs on each role, and when.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

struct GpuType;

struct PeakMemory {
  std::int64_t bytes = 0;  // The most that is live at once, in issue order: what a perfect packing needs.
  std::int32_t instruction = -1;  // Where the peak is; −1: nothing transient is live.
  std::array<std::int64_t, kMemoryCategoryCount> by_category{};  // At the peak; sums to `bytes`.
};

PeakMemory peak_memory(const Role& role);

// Which roles need more than the GPU has, by how much and for what, and what the plan leaves untried; empty
// when everything fits.
std::string memory_fault(const Program& program, const Plan& plan, const GpuType& gpu);

}  // namespace orrery

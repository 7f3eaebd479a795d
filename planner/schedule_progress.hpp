#pragma once
// The one way through a schedule that times, verifies and refuses it: each rank does its passes in order as
// soon as what they wait for has been done.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "planner/pipeline_schedule.hpp"

namespace orrery {

// Dense index of (virtual stage, micro-batch).
inline std::size_t schedule_index(const Schedule& schedule, std::int32_t stage, std::int32_t microbatch) {
  return static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule.shape.microbatches) +
         static_cast<std::size_t>(microbatch);
}

// 2 where a pass overlaps the next one, else 1: both then start together once both may.
inline std::size_t unit_size(std::span<const Pass> passes, std::size_t first) {
  return passes[first].overlaps_next && first + 1 < passes.size() ? 2 : 1;
}

// A rank's unit of one or two passes, `first` its index.
using UnitVisitor = std::function<void(std::int32_t rank, std::size_t first, std::span<const Pass> unit)>;

// Visits every unit after all that it waits for; without `overlap` every pass is a unit. Returns nothing when
// all passes ran, else the index of the pass that each rank stopped at (its list's size where it finished).
// REQUIRES: passes in range.
std::vector<std::size_t> run_passes(const Schedule& schedule, bool overlap, const UnitVisitor& visit);

// "rank 0 at F3 of chunk 1, after rank 2's F3 of chunk 0; rank 1 at B0 before its own F0; …".
std::string blocked_text(const Schedule& schedule, const std::vector<std::size_t>& stopped_at);

// "F3", "B3", "I3", "W3", and " of chunk 1" where ranks have several.
std::string pass_text(const Schedule& schedule, const Pass& pass);

// THROWS Error(kInfeasible) that says so.
[[noreturn]] void fail_blocked(const Schedule& schedule, const std::vector<std::size_t>& stopped_at);

}  // namespace orrery

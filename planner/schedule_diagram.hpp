#pragma once
// A schedule as text, to be read in a terminal.

#include <string>

#include "planner/schedule_timing.hpp"

namespace orrery {

// One line per rank, time to the right, `width` (≥ 20) columns for the makespan: each pass is its letter (F
// forward, B backward, I and W its input and weight part; lower case in odd chunks), its micro-batch as far
// as it fits, then '-', '=', '~' or '\'' as it is F, B, I or W; '.' is idle. Passes that overlap share their
// time, first half and second. A pass narrower than a column may hide behind its neighbour.
//
//   rank 0 |F0F1......B0=..
std::string pipeline_diagram(const Schedule& schedule, const ScheduleTiming& timing, int width = 100);

}  // namespace orrery

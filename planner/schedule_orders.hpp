#pragma once
// The order of each kind, one rank at a time, and the schedule around them. Part of build_schedule; takes
// shapes that schedule_fault refuses, too, so that tests can see them fail. REQUIRES: with_defaults has run.

#include "planner/pipeline_schedule.hpp"

namespace orrery {

// schedule_orders.cpp: gpipe, 1f1b, eager-1f1b, interleaved, looped-bfs, zb-h1, zb-h2.
std::vector<Pass> chained_order(const ScheduleShape& shape, std::int32_t rank);
// schedule_orders_v.cpp: zb-v, v-half, v-min.
std::vector<Pass> v_order(const ScheduleShape& shape, std::int32_t rank);
// schedule_orders_dual.cpp: dualpipe, dualpipe-v.
std::vector<Pass> dual_order(const ScheduleShape& shape, std::int32_t rank);

// Stages and places of `shape`, no passes yet.
Schedule place_stages(const ScheduleShape& shape);
// What build_schedule returns, whether or not it can run.
Schedule assemble(const ScheduleShape& shape);

}  // namespace orrery

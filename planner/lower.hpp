#pragma once
// Plan → Program: the graph's ops divided over ranks, every collective and send explicit, in the order
// of the schedule.

#include <cstdint>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

// REQUIRES: verify(graph) and check(plan, graph) are empty. Roles are lowered on up to `threads` threads; the
// result doesn't depend on it. `passes`: comes back with what each of Plan::passes did.
Program lower(const Graph& graph, const Plan& plan, int threads = 1,
              std::vector<PassReport>* passes = nullptr);

}  // namespace orrery

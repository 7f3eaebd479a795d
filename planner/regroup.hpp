#pragma once
// A plan without the ranks that are lost: wounded pipeline replicas are mended with idle ranks, or with what
// is left of other wounded ones, and those that can't be are dropped.

#include <cstdint>
#include <span>
#include <vector>

#include "model/graph.hpp"
#include "planner/plan.hpp"

namespace orrery {

struct Regrouped {
  Plan plan;                  // Of as many ranks as before; the lost ones are idle.
  std::int32_t dropped = 0;   // Replicas.
  std::vector<RankId> moved;  // Ranks that do what another one did before; they need its state.
  // Whether the ranks that are left hold all parameters and optimiser state between them.
  bool covered = true;
};

// Groups of tensor and context parallelism stay whole: a spare is a full group, within one node where it was
// before. With `keep_batch` the micro-batches of dropped replicas go to the others, as evenly as can be; else
// each keeps its own. Where the plan's rules ask for equal replicas (ZeRO 2 and 3, experts, schedules), as
// many more are dropped as that needs. REQUIRES: check(plan, graph) is empty. THROWS Error(kInfeasible) when
// no replica is left.
Regrouped regroup(const Plan& plan, const Graph& graph, std::span<const RankId> lost,
                  std::int32_t gpus_per_node, bool keep_batch);

}  // namespace orrery

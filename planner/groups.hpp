#pragma once
// Which ranks talk to which: the axes of a lowered Program.

#include <cstdint>
#include <vector>

#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

struct PlanAxes {
  std::vector<Axis> axes;
  // Invalid where the group would be one rank.
  AxisId tensor, context, expert, pipeline, world, embedding;
  AxisId expert_tensor;  // Over which experts' matrices are divided; the tensor axis where the degrees agree.
  // By replica, stage and block − first block: the axis over which that block's gradients are summed.
  std::vector<std::vector<std::vector<AxisId>>> gradient;
  // The same for the experts' weights: over the ranks of those that have the same experts, "edp".
  std::vector<std::vector<std::vector<AxisId>>> expert_gradient;
};

// Gradients of a block are summed over the ranks that hold it in each replica: over those of all
// context-parallel positions, and where a bidirectional schedule holds every stage twice, over both. Replicas
// cut alike need one axis, "dp". Replicas cut differently (after a shrink) need several, "dp0", "dp1", …:
// blocks held together by the same positions share a group, and groups that share a rank lie on different
// axes.
PlanAxes plan_axes(const Plan& plan, const Graph& graph, bool tied_embedding);

}  // namespace orrery

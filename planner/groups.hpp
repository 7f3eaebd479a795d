#pragma once
// Which ranks talk to which: the axes of a lowered Program.

#include <cstdint>
#include <vector>

#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

// How a gradient is summed: reduce-scattered over the ranks that divide its state, all-reduced over those
// that repeat it. Invalid axes have degree 1.
struct ReductionAxes {
  AxisId shard, replicate;
  std::int32_t shard_degree = 1, replicate_degree = 1;
  auto operator<=>(const ReductionAxes&) const = default;
};
// By stage and block − first block.
using BlockReductions = std::vector<std::vector<ReductionAxes>>;

struct PlanAxes {
  std::vector<Axis> axes;
  // Invalid where the group would be one rank.
  AxisId tensor, context, expert, pipeline, world, embedding;
  AxisId expert_tensor;  // Over which experts' matrices are divided; the tensor axis where the degrees agree.
  // By replica: over whom each block's gradients are summed.
  std::vector<BlockReductions> gradient;
  // The same for the experts' weights: over the ranks of those that have the same experts, "edp".
  std::vector<BlockReductions> expert_gradient;
};

// Whether the head uses the token table too, which then has to be summed between the pipeline's ends.
bool tied_embedding(const Graph& graph);

// Gradients of a block are summed over the ranks that hold it in each replica: over those of all
// context-parallel positions, and where a bidirectional schedule holds every stage twice, over both. Replicas
// cut alike need one axis, "dp". Replicas cut differently (after a shrink) need several, "dp0", "dp1", …:
// blocks held together by the same positions share a group, and groups that share a rank lie on different
// axes. Hybrid sharding cuts each group into runs of neighbours, "dp_shard", which divide the state, and the
// ranks of equal place in them, "dp_replicate".
PlanAxes plan_axes(const Plan& plan, const Graph& graph, bool tied_embedding);

}  // namespace orrery

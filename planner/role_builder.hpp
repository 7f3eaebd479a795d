#pragma once
// One role: the templates of the stages that its ranks hold, repeated in the order of the schedule, with
// receives and sends, gradient reduction, optimiser and parameter gathers around them.

#include <cstdint>
#include <tuple>
#include <vector>

#include "model/program.hpp"
#include "planner/groups.hpp"
#include "planner/pipeline_schedule.hpp"
#include "planner/plan.hpp"
#include "planner/stage_template.hpp"
#include "planner/state_shards.hpp"

namespace orrery {

struct RoleShape {
  std::vector<BlockRange> chunks;  // The blocks of each virtual stage held here.
  std::int32_t position = 0;       // In the pipeline.
  std::int32_t microbatches = 1;
  BlockReductions gradient, expert_gradient;  // By chunk and block − first block.
  const Schedule* schedule = nullptr;         // Follows from the above; of all ranks of the pipeline.
  AxisId pipeline, world, embedding, tensor;
  auto operator<=>(const RoleShape& other) const {
    return std::tie(chunks, position, microbatches, gradient, expert_gradient) <=>
           std::tie(other.chunks, other.position, other.microbatches, other.gradient, other.expert_gradient);
  }
  bool operator==(const RoleShape& other) const { return (*this <=> other) == 0; }
};

// REQUIRES: one template per chunk.
Role build_role(const Plan& plan, const std::vector<StageTemplate>& stages, const RoleShape& shape,
                const StateShards& shards, SymbolTable& symbols);

}  // namespace orrery

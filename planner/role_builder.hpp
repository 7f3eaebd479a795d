#pragma once
// One role: the templates of the stages that its ranks hold, repeated in the order of the schedule, with
// receives and sends, gradient reduction, optimiser and parameter gathers around them.

#include <cstdint>
#include <tuple>
#include <vector>

#include "model/program.hpp"
#include "planner/pipeline_schedule.hpp"
#include "planner/plan.hpp"
#include "planner/stage_template.hpp"

namespace orrery {

struct RoleShape {
  std::vector<BlockRange> chunks;  // The blocks of each virtual stage held here.
  std::int32_t position = 0;       // In the pipeline.
  std::int32_t microbatches = 1;
  std::vector<std::vector<AxisId>> gradient, expert_gradient;    // By chunk and block − first block.
  std::int32_t gradient_degree = 1, expert_gradient_degree = 1;  // Ranks that sum their gradients.
  const Schedule* schedule = nullptr;  // Follows from the above; of all ranks of the pipeline.
  AxisId pipeline, world, embedding, tensor;
  auto operator<=>(const RoleShape& other) const {
    return std::tie(chunks, position, microbatches, gradient, expert_gradient, gradient_degree) <=>
           std::tie(other.chunks, other.position, other.microbatches, other.gradient, other.expert_gradient,
                    other.gradient_degree);
  }
  bool operator==(const RoleShape& other) const { return (*this <=> other) == 0; }
};

// REQUIRES: one template per chunk.
Role build_role(const Plan& plan, const std::vector<StageTemplate>& stages, const RoleShape& shape,
                SymbolTable& symbols);

}  // namespace orrery

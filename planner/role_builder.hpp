#pragma once
// One role: a stage's template repeated in the order of the schedule, with receives and sends, gradient
// reduction, optimiser and parameter gathers around it.

#include <cstdint>
#include <tuple>
#include <vector>

#include "model/program.hpp"
#include "planner/plan.hpp"
#include "planner/stage_template.hpp"

namespace orrery {

struct RoleShape {
  BlockRange blocks;
  std::int32_t stage = 0, stages = 1;
  std::int32_t microbatches = 1;
  std::int32_t replicas = 1;
  AxisId pipeline, world, embedding, tensor;
  std::vector<AxisId> gradient;  // By block − first block.
  auto operator<=>(const RoleShape& other) const {
    return std::tie(blocks.first, blocks.last, stage, stages, microbatches, gradient) <=>
           std::tie(other.blocks.first, other.blocks.last, other.stage, other.stages, other.microbatches,
                    other.gradient);
  }
  bool operator==(const RoleShape& other) const { return (*this <=> other) == 0; }
};

Role build_role(const Plan& plan, const StageTemplate& stage, const RoleShape& shape, SymbolTable& symbols);

}  // namespace orrery

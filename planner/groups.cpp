#include "planner/groups.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

AxisId add_axis(PlanAxes& plan_axes, Axis axis) {
  const bool useful = std::any_of(axis.groups.begin(), axis.groups.end(),
                                  [](const std::vector<RankId>& group) { return group.size() > 1; });
  if (!useful) return {};
  std::erase_if(axis.groups, [](const std::vector<RankId>& group) { return group.size() < 2; });
  plan_axes.axes.push_back(std::move(axis));
  return AxisId(std::ssize(plan_axes.axes) - 1);
}

Axis tensor_axis(const Plan& plan) {
  Axis axis{"tp", {}};
  for (const PipelineReplica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) axis.groups.push_back(stage.ranks);
  }
  return axis;
}

// Ranks of equal tensor-parallel index along the stages; `ends` keeps only the first and last stage.
Axis stage_axis(const Plan& plan, const std::string& name, bool ends) {
  Axis axis{name, {}};
  for (const PipelineReplica& replica : plan.replicas) {
    for (std::size_t t = 0; t < replica.stages.front().ranks.size(); ++t) {
      std::vector<RankId> group;
      for (std::size_t s = 0; s < replica.stages.size(); ++s) {
        const bool end = s == 0 || s + 1 == replica.stages.size();
        if (end || !ends) group.push_back(replica.stages[s].ranks[t]);
      }
      axis.groups.push_back(std::move(group));
    }
  }
  return axis;
}

Axis world_axis(const Plan& plan) {
  std::vector<RankId> all;
  for (const PipelineReplica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) all.insert(all.end(), stage.ranks.begin(), stage.ranks.end());
  }
  std::sort(all.begin(), all.end());
  return {"world", {std::move(all)}};
}

// Blocks that the same stages hold in every replica.
struct Segment {
  std::int32_t first_block = 0, last_block = 0;
  std::vector<std::int32_t> stage_of;  // By replica.
  std::int32_t colour = 0;
};

std::vector<Segment> segments(const Plan& plan, std::int32_t blocks) {
  std::vector<Segment> found;
  std::vector<std::int32_t> stage_of(plan.replicas.size(), 0);
  for (std::int32_t block = 0; block < blocks; ++block) {
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
      const auto& stages = plan.replicas[r].stages;
      while (block >= stages[static_cast<std::size_t>(stage_of[r])].last_block) ++stage_of[r];
    }
    if (found.empty() || found.back().stage_of != stage_of) found.push_back({block, block, stage_of, 0});
    found.back().last_block = block + 1;
  }
  // Segments that share a stage share its ranks, so they need different axes. Neighbours alone can do so.
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::vector<bool> taken(i + 1);
    for (std::size_t j = 0; j < i; ++j) {
      bool shares = false;
      for (std::size_t r = 0; r < plan.replicas.size() && !shares; ++r) {
        shares = found[i].stage_of[r] == found[j].stage_of[r];
      }
      if (shares) taken[static_cast<std::size_t>(found[j].colour)] = true;
    }
    while (taken[static_cast<std::size_t>(found[i].colour)]) ++found[i].colour;
  }
  return found;
}

void add_gradient_axes(const Plan& plan, std::int32_t blocks, PlanAxes& result) {
  result.gradient.resize(plan.replicas.size());
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (const Stage& stage : plan.replicas[r].stages) {
      result.gradient[r].emplace_back(static_cast<std::size_t>(stage.last_block - stage.first_block));
    }
  }
  if (plan.replicas.size() < 2) return;

  const std::vector<Segment> parts = segments(plan, blocks);
  std::int32_t colours = 0;
  for (const Segment& part : parts) colours = std::max(colours, part.colour + 1);
  for (std::int32_t colour = 0; colour < colours; ++colour) {
    Axis axis{colours == 1 ? "dp" : fmt::format("dp{}", colour), {}};
    for (const Segment& part : parts) {
      if (part.colour != colour) continue;
      for (std::size_t t = 0; t < plan.replicas.front().stages.front().ranks.size(); ++t) {
        std::vector<RankId> group;
        for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
          group.push_back(plan.replicas[r].stages[static_cast<std::size_t>(part.stage_of[r])].ranks[t]);
        }
        axis.groups.push_back(std::move(group));
      }
    }
    const AxisId id = add_axis(result, std::move(axis));
    for (const Segment& part : parts) {
      if (part.colour != colour) continue;
      for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const auto s = static_cast<std::size_t>(part.stage_of[r]);
        for (std::int32_t block = part.first_block; block < part.last_block; ++block) {
          result.gradient[r][s][static_cast<std::size_t>(block - plan.replicas[r].stages[s].first_block)] =
              id;
        }
      }
    }
  }
}

}  // namespace

PlanAxes plan_axes(const Plan& plan, const Graph& graph, bool tied_embedding) {
  PlanAxes result;
  result.tensor = add_axis(result, tensor_axis(plan));
  result.pipeline = add_axis(result, stage_axis(plan, "pp", false));
  add_gradient_axes(plan, graph.block_count(), result);
  if (tied_embedding) result.embedding = add_axis(result, stage_axis(plan, "embedding", true));
  if (plan.clip_gradients) result.world = add_axis(result, world_axis(plan));
  return result;
}

}  // namespace orrery

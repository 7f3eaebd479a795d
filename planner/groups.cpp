#include "planner/groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

// Ranks of one pipeline position at equal context-parallel (tensor-parallel) index.
Axis tensor_axis(const Plan& plan) {
  Axis axis{"tp", {}};
  const std::ptrdiff_t tp = plan.tensor_parallel();
  for (const PipelineReplica& replica : plan.replicas) {
    for (const auto* const ranks : pipeline_positions(replica)) {
      for (auto first = ranks->begin(); first != ranks->end(); first += tp) {
        axis.groups.emplace_back(first, first + tp);
      }
    }
  }
  return axis;
}

Axis context_axis(const Plan& plan) {
  Axis axis{"cp", {}};
  const auto tp = static_cast<std::size_t>(plan.tensor_parallel());
  for (const PipelineReplica& replica : plan.replicas) {
    for (const auto* const ranks : pipeline_positions(replica)) {
      for (std::size_t t = 0; t < tp; ++t) {
        std::vector<RankId>& group = axis.groups.emplace_back();
        for (std::size_t r = t; r < ranks->size(); r += tp) group.push_back((*ranks)[r]);
      }
    }
  }
  return axis;
}

// Ranks of one pipeline position: tensor parallel innermost, then context, then data parallel.
std::vector<RankId> position_ranks(const std::vector<const std::vector<RankId>*>& of_replicas) {
  std::vector<RankId> all;
  for (const auto* const ranks : of_replicas) all.insert(all.end(), ranks->begin(), ranks->end());
  return all;
}

// Consecutive ranks that share each expert's matrices.
Axis expert_tensor_axis(const Plan& plan) {
  Axis axis{"etp", {}};
  for (const PipelineReplica& replica : plan.replicas) {
    for (const auto* const ranks : pipeline_positions(replica)) {
      for (auto first = ranks->begin(); first != ranks->end(); first += plan.expert_tensor_parallel()) {
        axis.groups.emplace_back(first, first + plan.expert_tensor_parallel());
      }
    }
  }
  return axis;
}

// Groups that exchange tokens: of consecutive ranks those of equal index in their expert-tensor-parallel
// group (Megatron-LM's order of expert ranks). REQUIRES: replicas cut alike, as check(plan, graph) says where
// ep is above 1.
Axis expert_axis(const Plan& plan) {
  Axis axis{"ep", {}};
  const auto inner = static_cast<std::size_t>(plan.expert_tensor_parallel());
  const std::size_t whole = inner * static_cast<std::size_t>(plan.expert_parallel);
  std::vector<std::vector<const std::vector<RankId>*>> by_replica;
  for (const PipelineReplica& replica : plan.replicas) by_replica.push_back(pipeline_positions(replica));
  for (std::size_t p = 0; p < by_replica.front().size(); ++p) {
    std::vector<const std::vector<RankId>*> of_replicas;
    for (const auto& positions : by_replica) of_replicas.push_back(positions[p]);
    const std::vector<RankId> all = position_ranks(of_replicas);
    for (std::size_t t = 0; t < inner; ++t) {
      for (std::size_t first = t; first < all.size(); first += whole) {
        std::vector<RankId>& group = axis.groups.emplace_back();
        for (std::size_t i = first; i < first + whole; i += inner) group.push_back(all[i]);
      }
    }
  }
  return axis;
}

// Ranks of equal index along the pipeline.
Axis pipeline_axis(const Plan& plan) {
  Axis axis{"pp", {}};
  for (const PipelineReplica& replica : plan.replicas) {
    const auto positions = pipeline_positions(replica);
    for (std::size_t i = 0; i < positions.front()->size(); ++i) {
      std::vector<RankId>& group = axis.groups.emplace_back();
      for (const auto* const ranks : positions) group.push_back((*ranks)[i]);
    }
  }
  return axis;
}

// The holders of a tied token table in one replica: the first and the last stage. Where both are on the same
// ranks the table is held, and its gradient summed, once.
Axis embedding_axis(const Plan& plan) {
  Axis axis{"embedding", {}};
  if (plan.schedule == PipelineSchedule::kDualPipe) return axis;  // Both hold both ends.
  for (const PipelineReplica& replica : plan.replicas) {
    const auto& first = replica.stages.front().ranks;
    const auto& last = replica.stages.back().ranks;
    if (first == last) continue;
    for (std::size_t i = 0; i < first.size(); ++i) axis.groups.push_back({first[i], last[i]});
  }
  return axis;
}

Axis world_axis(const Plan& plan) {
  std::vector<RankId> all;
  for (const PipelineReplica& replica : plan.replicas) {
    for (const auto* const ranks : pipeline_positions(replica))
      all.insert(all.end(), ranks->begin(), ranks->end());
  }
  std::sort(all.begin(), all.end());
  return {"world", {std::move(all)}};
}

// Blocks that the same ranks hold in every replica.
struct Segment {
  std::int32_t first_block = 0, last_block = 0;
  std::vector<std::int32_t> stage_of;                // By replica.
  std::vector<std::vector<std::int32_t>> positions;  // By replica: who holds it.
  std::int32_t colour = 0;
};

bool share_ranks(const Segment& a, const Segment& b) {
  for (std::size_t r = 0; r < a.positions.size(); ++r) {
    for (const std::int32_t position : a.positions[r]) {
      if (std::find(b.positions[r].begin(), b.positions[r].end(), position) != b.positions[r].end())
        return true;
    }
  }
  return false;
}

using Positions = std::vector<const std::vector<RankId>*>;

std::vector<std::int32_t> holders(const Plan& plan, const PipelineReplica& replica,
                                  const Positions& positions, std::int32_t stage) {
  const auto& ranks = replica.stages[static_cast<std::size_t>(stage)].ranks;
  const auto found =
      std::find_if(positions.begin(), positions.end(), [&](const auto* known) { return *known == ranks; });
  const auto position = static_cast<std::int32_t>(found - positions.begin());
  const auto mirrored = static_cast<std::int32_t>(std::ssize(positions)) - 1 - position;
  if (plan.schedule != PipelineSchedule::kDualPipe || mirrored == position) return {position};
  return {std::min(position, mirrored), std::max(position, mirrored)};
}

std::vector<Segment> segments(const Plan& plan, const std::vector<Positions>& positions,
                              std::int32_t blocks) {
  std::vector<Segment> found;
  std::vector<std::int32_t> stage_of(plan.replicas.size(), 0);
  for (std::int32_t block = 0; block < blocks; ++block) {
    for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
      const auto& stages = plan.replicas[r].stages;
      while (block >= stages[static_cast<std::size_t>(stage_of[r])].last_block) ++stage_of[r];
    }
    if (found.empty() || found.back().stage_of != stage_of) {
      Segment& segment = found.emplace_back(Segment{block, block, stage_of, {}, 0});
      for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        segment.positions.push_back(holders(plan, plan.replicas[r], positions[r], stage_of[r]));
      }
    }
    found.back().last_block = block + 1;
  }
  // Segments that share ranks need different axes, unless they share all of them.
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::vector<bool> taken(i + 1);
    for (std::size_t j = 0; j < i; ++j) {
      if (found[i].positions != found[j].positions && share_ranks(found[i], found[j])) {
        taken[static_cast<std::size_t>(found[j].colour)] = true;
      }
    }
    while (taken[static_cast<std::size_t>(found[i].colour)]) ++found[i].colour;
  }
  return found;
}

// `experts`: only ranks that have the same experts belong together.
void add_groups(const Plan& plan, const std::vector<Positions>& positions, const Segment& part, bool experts,
                Axis& axis) {
  const auto alike = static_cast<std::size_t>(experts ? plan.expert_parallel : 1);
  const auto inner =
      static_cast<std::size_t>(experts ? plan.expert_tensor_parallel() : plan.tensor_parallel());
  for (std::size_t t = 0; t < inner; ++t) {
    std::vector<RankId> all;
    const std::size_t holders_count = part.positions.front().size();
    // Holder by holder, so that the ranks of each stand in the order of its expert-parallel groups.
    for (std::size_t h = 0; h < holders_count; ++h) {
      Positions of_replicas;
      for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        of_replicas.push_back(positions[r][static_cast<std::size_t>(part.positions[r][h])]);
      }
      const std::vector<RankId> of_holder = position_ranks(of_replicas);
      all.insert(all.end(), of_holder.begin(), of_holder.end());
    }
    for (std::size_t e = 0; e < alike; ++e) {
      std::vector<RankId> group;
      for (std::size_t i = e * inner + t; i < all.size(); i += alike * inner) group.push_back(all[i]);
      if (std::find(axis.groups.begin(), axis.groups.end(), group) == axis.groups.end()) {
        axis.groups.push_back(std::move(group));
      }
    }
  }
}

// How many ranks of a group of `size` divide state among themselves.
std::int32_t shard_degree(const Plan& plan, bool experts, std::int32_t size) {
  if (plan.zero_stage == 0) return 1;
  if (plan.zero_group == 0) return size;
  // Neighbours that divide experts among themselves divide no one's state.
  return experts ? std::gcd(size, std::max(1, plan.zero_group / plan.expert_parallel)) : plan.zero_group;
}

ReductionAxes add_reduction_axes(const Plan& plan, bool experts, Axis axis, PlanAxes& result) {
  const auto size = static_cast<std::int32_t>(std::ssize(axis.groups.front()));
  ReductionAxes axes;
  axes.shard_degree = shard_degree(plan, experts, size);
  axes.replicate_degree = size / axes.shard_degree;
  if (axes.replicate_degree == 1) {
    axes.shard = add_axis(result, std::move(axis));
  } else if (axes.shard_degree == 1) {
    axes.replicate = add_axis(result, std::move(axis));
  } else {
    Axis shard{axis.name + "_shard", {}}, replicate{axis.name + "_replicate", {}};
    for (const std::vector<RankId>& group : axis.groups) {
      for (auto first = group.begin(); first != group.end(); first += axes.shard_degree) {
        shard.groups.emplace_back(first, first + axes.shard_degree);
      }
      for (std::int32_t place = 0; place < axes.shard_degree; ++place) {
        std::vector<RankId>& equals = replicate.groups.emplace_back();
        for (std::int32_t i = place; i < size; i += axes.shard_degree) {
          equals.push_back(group[static_cast<std::size_t>(i)]);
        }
      }
    }
    axes.shard = add_axis(result, std::move(shard));
    axes.replicate = add_axis(result, std::move(replicate));
  }
  return axes;
}

std::vector<BlockReductions> gradient_axes(const Plan& plan, const std::vector<Positions>& positions,
                                           const std::vector<Segment>& parts, bool experts,
                                           PlanAxes& result) {
  std::vector<BlockReductions> of_block(plan.replicas.size());
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (const Stage& stage : plan.replicas[r].stages) {
      of_block[r].emplace_back(static_cast<std::size_t>(stage.last_block - stage.first_block));
    }
  }
  std::int32_t colours = 0;
  for (const Segment& part : parts) colours = std::max(colours, part.colour + 1);
  const std::string name = experts ? "edp" : plan.context_parallel > 1 ? "dp_cp" : "dp";
  for (std::int32_t colour = 0; colour < colours; ++colour) {
    Axis axis{colours == 1 ? name : fmt::format("{}{}", name, colour), {}};
    for (const Segment& part : parts) {
      if (part.colour == colour) add_groups(plan, positions, part, experts, axis);
    }
    const ReductionAxes axes = add_reduction_axes(plan, experts, std::move(axis), result);
    for (const Segment& part : parts) {
      if (part.colour != colour) continue;
      for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
        const auto s = static_cast<std::size_t>(part.stage_of[r]);
        for (std::int32_t block = part.first_block; block < part.last_block; ++block) {
          of_block[r][s][static_cast<std::size_t>(block - plan.replicas[r].stages[s].first_block)] = axes;
        }
      }
    }
  }
  return of_block;
}

void add_gradient_axes(const Plan& plan, std::int32_t blocks, PlanAxes& result) {
  std::vector<Positions> positions;
  for (const PipelineReplica& replica : plan.replicas) positions.push_back(pipeline_positions(replica));
  const std::vector<Segment> parts = segments(plan, positions, blocks);
  result.gradient = gradient_axes(plan, positions, parts, false, result);
  const bool apart = plan.expert_parallel > 1 || plan.expert_tensor_parallel() != plan.tensor_parallel();
  result.expert_gradient = apart ? gradient_axes(plan, positions, parts, true, result) : result.gradient;
}

}  // namespace

bool tied_embedding(const Graph& graph) {
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward || op.block != graph.block_count() - 1) continue;
    for (const TensorId input : op.inputs) {
      if (graph[input].kind == TensorKind::kParameter && graph[input].block == 0) return true;
    }
  }
  return false;
}

PlanAxes plan_axes(const Plan& plan, const Graph& graph, bool tied_embedding) {
  PlanAxes result;
  result.tensor = add_axis(result, tensor_axis(plan));
  result.context = add_axis(result, context_axis(plan));
  if (plan.expert_parallel > 1) result.expert = add_axis(result, expert_axis(plan));
  result.expert_tensor = plan.expert_tensor_parallel() == plan.tensor_parallel()
                             ? result.tensor
                             : add_axis(result, expert_tensor_axis(plan));
  result.pipeline = add_axis(result, pipeline_axis(plan));
  add_gradient_axes(plan, graph.block_count(), result);
  if (tied_embedding) result.embedding = add_axis(result, embedding_axis(plan));
  if (plan.clip_gradients) result.world = add_axis(result, world_axis(plan));
  return result;
}

}  // namespace orrery

#include "planner/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <map>
#include <thread>
#include <tuple>

#include "planner/groups.hpp"
#include "planner/recompute.hpp"
#include "planner/role_builder.hpp"
#include "planner/sharding.hpp"
#include "planner/stage_passes.hpp"
#include "planner/stage_template.hpp"

namespace orrery {
namespace {

struct LoweredRole {
  Role role;
  SymbolTable symbols;
  std::vector<PassReport> passes;
};

std::vector<PassReport> no_reports(const Plan& plan) {
  std::vector<PassReport> reports;
  for (const LoweringPass pass : all_lowering_passes()) {
    reports.push_back({pass, plan.passes.contains(pass), 0, 0});
  }
  return reports;
}

// Distinct roles and, by replica and pipeline position, which of them it is.
struct RoleTable {
  std::vector<RoleShape> shapes;
  std::vector<std::vector<RoleId>> of_position;
};

// By ranks, chunks and micro-batches: replicas cut alike share one schedule.
using Schedules = std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, Schedule>;

const Schedule& schedule_of(const Plan& plan, const PipelineReplica& replica, Schedules& known) {
  const ScheduleShape shape = schedule_shape(plan, replica);
  const auto [found, inserted] = known.try_emplace({shape.ranks, shape.chunks, shape.microbatches});
  if (inserted) found->second = build_schedule(shape);
  return found->second;
}

RoleTable find_roles(const Plan& plan, const PlanAxes& axes, Schedules& schedules) {
  RoleTable table;
  std::map<RoleShape, RoleId> known;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const PipelineReplica& replica = plan.replicas[r];
    const Schedule& schedule = schedule_of(plan, replica, schedules);
    table.of_position.emplace_back();
    for (std::int32_t position = 0; position < schedule.shape.ranks; ++position) {
      RoleShape shape;
      for (const std::int32_t s : schedule.stage_of[static_cast<std::size_t>(position)]) {
        const Stage& stage = replica.stages[static_cast<std::size_t>(s)];
        shape.chunks.push_back({stage.first_block, stage.last_block});
        shape.gradient.push_back(axes.gradient[r][static_cast<std::size_t>(s)]);
        shape.expert_gradient.push_back(axes.expert_gradient[r][static_cast<std::size_t>(s)]);
      }
      shape.position = position;
      shape.microbatches = schedule.shape.microbatches;
      shape.schedule = &schedule;
      shape.pipeline = axes.pipeline;
      shape.world = axes.world;
      shape.embedding = axes.embedding;
      shape.tensor = axes.tensor;
      const auto [found, inserted] = known.try_emplace(shape, RoleId(std::ssize(table.shapes)));
      if (inserted) table.shapes.push_back(shape);
      table.of_position.back().push_back(found->second);
    }
  }
  return table;
}

// Moves a role's labels and kernels into the program's tables.
void merge(LoweredRole lowered, Program& program) {
  std::vector<LabelId> labels;
  for (const std::string& label : lowered.symbols.labels) labels.push_back(program.intern(label));
  std::vector<KernelId> kernels;
  for (Kernel kernel : lowered.symbols.kernels) {
    kernel.label = labels[kernel.label.index()];
    const auto found = std::find(program.kernels.begin(), program.kernels.end(), kernel);
    kernels.emplace_back(found - program.kernels.begin());
    if (found == program.kernels.end()) program.kernels.push_back(kernel);
  }
  for (Instruction& instruction : lowered.role.instructions) {
    instruction.label = labels[instruction.label.index()];
    if (auto* const compute = std::get_if<Compute>(&instruction.work)) {
      compute->kernel = kernels[compute->kernel.index()];
    }
  }
  for (Buffer& buffer : lowered.role.buffers) buffer.label = labels[buffer.label.index()];
  program.roles.push_back(std::move(lowered.role));
}

std::string role_name(const RoleShape& shape, const std::vector<RoleShape>& all) {
  const auto same = std::count_if(all.begin(), all.end(),
                                  [&](const RoleShape& other) { return other.position == shape.position; });
  const auto ordinal = std::find(all.begin(), all.end(), shape) - all.begin();
  return same == 1 ? fmt::format("stage{}", shape.position)
                   : fmt::format("stage{}_{}", shape.position, ordinal);
}

void bind_ranks(const Plan& plan, const RoleTable& roles, Program& program) {
  const auto world = static_cast<std::size_t>(plan.world_size());
  program.role_of.assign(world, RoleId());
  program.first_microbatch.assign(world, 0);
  for (std::size_t rank = 0; rank < world; ++rank)
    program.device_of.push_back(plan.device(RankId(static_cast<std::int64_t>(rank))));
  std::int64_t first = 0;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto positions = pipeline_positions(plan.replicas[r]);
    for (std::size_t p = 0; p < positions.size(); ++p) {
      for (const RankId rank : *positions[p]) {
        program.role_of[rank.index()] = roles.of_position[r][p];
        program.first_microbatch[rank.index()] = static_cast<std::int32_t>(first);
      }
    }
    first += plan.replicas[r].microbatches;
  }
}

// Launches of the optimiser.
std::int64_t updates(const LoweredRole& lowered) {
  return std::count_if(lowered.role.instructions.begin(), lowered.role.instructions.end(),
                       [&](const Instruction& instruction) {
                         const auto* const compute = std::get_if<Compute>(&instruction.work);
                         return compute != nullptr && lowered.symbols.kernels[compute->kernel.index()].kind ==
                                                          KernelKind::kOptimizer;
                       });
}

LoweredRole lower_role(const Graph& graph, const GraphIndex& index, const Plan& plan,
                       const Sharding& sharding, const StateShards& shards, const KernelSet& kernels,
                       const std::vector<bool>& recomputed, const RoleShape& shape) {
  LoweredRole lowered;
  lowered.passes = no_reports(plan);
  std::vector<StageTemplate> stages;
  for (std::size_t c = 0; c < shape.chunks.size(); ++c) {
    StageInput input{graph, index, plan, sharding, kernels, shape.chunks[c]};
    input.whole_backward = input.split_backward = false;
    input.recomputed = &recomputed;
    for (const Pass& pass : shape.schedule->passes[static_cast<std::size_t>(shape.position)]) {
      if (static_cast<std::size_t>(pass.chunk) != c) continue;
      input.whole_backward = input.whole_backward || pass.kind == PassKind::kBackward;
      input.split_backward = input.split_backward || pass.kind == PassKind::kBackwardInput;
    }
    stages.push_back(build_stage(input, lowered.symbols));
    run_stage_passes(stages.back(), input, lowered.symbols, lowered.passes);
  }
  lowered.role = build_role(plan, stages, shape, shards, lowered.symbols);
  for (PassReport& report : lowered.passes) {
    if (report.pass == LoweringPass::kSplitOptimizer && report.on) report.changes += updates(lowered) - 1;
  }
  return lowered;
}

// Of every parameter that ZeRO divides, on every axis over which it does.
StateShards state_shards(const Graph& graph, const GraphIndex& index, const Sharding& sharding,
                         const Plan& plan, const PlanAxes& axes, const std::vector<RoleShape>& roles) {
  StateShards shards(graph, sharding, axes.axes);
  if (plan.zero_stage < 2) return shards;
  for (const RoleShape& role : roles) {
    for (std::size_t c = 0; c < role.chunks.size(); ++c) {
      for (std::int32_t block = role.chunks[c].first; block < role.chunks[c].last; ++block) {
        const auto at = static_cast<std::size_t>(block - role.chunks[c].first);
        for (const OpId op : index.forward[static_cast<std::size_t>(block)]) {
          for (const TensorId input : graph[op].inputs) {
            if (graph[input].kind != TensorKind::kParameter) continue;
            shards.add(input, (sharding.of_expert(input) ? role.expert_gradient : role.gradient)[c][at]);
          }
        }
      }
    }
  }
  return shards;
}

}  // namespace

Program lower(const Graph& graph, const Plan& plan, int threads, std::vector<PassReport>* passes) {
  const GraphIndex index(graph);
  PlanAxes axes = plan_axes(plan, graph, tied_embedding(graph));
  const Sharding sharding(graph, plan, {axes.tensor, axes.context, axes.expert, axes.expert_tensor});
  const KernelSet* const kernels = find_kernel_set(plan.kernel_set);
  assert(kernels != nullptr);
  const std::vector<bool> recomputed = recomputed_tensors(graph, index, plan);
  Schedules schedules;
  const RoleTable roles = find_roles(plan, axes, schedules);

  const StateShards shards = state_shards(graph, index, sharding, plan, axes, roles.shapes);

  std::vector<LoweredRole> lowered(roles.shapes.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < lowered.size(); i = next++) {
      lowered[i] = lower_role(graph, index, plan, sharding, shards, *kernels, recomputed, roles.shapes[i]);
      lowered[i].role.name = role_name(roles.shapes[i], roles.shapes);
    }
  };
  std::vector<std::jthread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
  helpers.clear();

  if (passes != nullptr) {
    *passes = no_reports(plan);
    for (const LoweredRole& role : lowered) {
      for (std::size_t p = 0; p < passes->size(); ++p) {
        (*passes)[p].changes += role.passes[p].changes;
        (*passes)[p].seconds += role.passes[p].seconds;
      }
    }
  }

  Program program;
  program.name = graph.name;
  program.captured = plan.cuda_graphs;
  program.axes = std::move(axes.axes);
  program.placements = shards.placements();
  program.sizes = sharding.global_sizes();
  for (LoweredRole& role : lowered) merge(std::move(role), program);
  bind_ranks(plan, roles, program);
  return program;
}

}  // namespace orrery

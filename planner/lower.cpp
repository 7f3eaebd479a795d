#include "planner/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <map>
#include <thread>

#include "planner/groups.hpp"
#include "planner/role_builder.hpp"
#include "planner/sharding.hpp"
#include "planner/stage_template.hpp"

namespace orrery {
namespace {

struct LoweredRole {
  Role role;
  SymbolTable symbols;
};

// The token table has to be summed between the pipeline's ends when the head uses it too.
bool tied_embedding(const Graph& graph) {
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward || op.block != graph.block_count() - 1) continue;
    for (const TensorId input : op.inputs) {
      if (graph[input].kind == TensorKind::kParameter && graph[input].block == 0) return true;
    }
  }
  return false;
}

// Distinct roles and, by replica and stage, which of them it is.
struct RoleTable {
  std::vector<RoleShape> shapes;
  std::vector<std::vector<RoleId>> of_stage;
};

RoleTable find_roles(const Plan& plan, const PlanAxes& axes) {
  RoleTable table;
  std::map<RoleShape, RoleId> known;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const PipelineReplica& replica = plan.replicas[r];
    table.of_stage.emplace_back();
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      RoleShape shape;
      shape.blocks = {replica.stages[s].first_block, replica.stages[s].last_block};
      shape.stage = static_cast<std::int32_t>(s);
      shape.stages = static_cast<std::int32_t>(replica.stages.size());
      shape.microbatches = static_cast<std::int32_t>(replica.microbatches);
      shape.replicas = static_cast<std::int32_t>(plan.replicas.size());
      shape.pipeline = axes.pipeline;
      shape.world = axes.world;
      shape.embedding = axes.embedding;
      shape.tensor = axes.tensor;
      shape.gradient = axes.gradient[r][s];
      const auto [found, inserted] = known.try_emplace(shape, RoleId(std::ssize(table.shapes)));
      if (inserted) table.shapes.push_back(shape);
      table.of_stage.back().push_back(found->second);
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
  const auto same_stage = std::count_if(all.begin(), all.end(),
                                        [&](const RoleShape& other) { return other.stage == shape.stage; });
  const auto ordinal = std::find(all.begin(), all.end(), shape) - all.begin();
  return same_stage == 1 ? fmt::format("stage{}", shape.stage)
                         : fmt::format("stage{}_{}", shape.stage, ordinal);
}

void bind_ranks(const Plan& plan, const RoleTable& roles, Program& program) {
  const std::int32_t world = plan.world_size();
  program.role_of.assign(static_cast<std::size_t>(world), RoleId());
  program.device_of.resize(static_cast<std::size_t>(world));
  for (std::int32_t rank = 0; rank < world; ++rank) program.device_of[static_cast<std::size_t>(rank)] = rank;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (std::size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      for (const RankId rank : plan.replicas[r].stages[s].ranks) {
        program.role_of[rank.index()] = roles.of_stage[r][s];
      }
    }
  }
}

}  // namespace

Program lower(const Graph& graph, const Plan& plan, int threads) {
  const GraphIndex index(graph);
  const auto degree = static_cast<std::int32_t>(plan.replicas.front().stages.front().ranks.size());
  const Sharding sharding(graph, plan, degree);
  const KernelSet* const kernels = find_kernel_set(plan.kernel_set);
  assert(kernels != nullptr);
  PlanAxes axes = plan_axes(plan, graph, tied_embedding(graph));
  const RoleTable roles = find_roles(plan, axes);

  std::vector<LoweredRole> lowered(roles.shapes.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < lowered.size(); i = next++) {
      const RoleShape& shape = roles.shapes[i];
      SymbolTable& symbols = lowered[i].symbols;
      const StageTemplate stage =
          build_stage(graph, index, plan, sharding, *kernels, shape.blocks, axes.tensor, symbols);
      lowered[i].role = build_role(plan, stage, shape, symbols);
      lowered[i].role.name = role_name(shape, roles.shapes);
    }
  };
  std::vector<std::jthread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
  work();
  helpers.clear();

  Program program;
  program.name = graph.name;
  program.captured = plan.cuda_graphs;
  program.axes = std::move(axes.axes);
  for (LoweredRole& role : lowered) merge(std::move(role), program);
  bind_ranks(plan, roles, program);
  return program;
}

}  // namespace orrery

#include "cli/prepare.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "planner/memory.hpp"
#include "scenarios/show.hpp"

namespace orrery {
namespace {

std::string file_name(const Scenario& scenario) { return scenario.file.string(); }

std::vector<RankId> ranks_of(const Program& program, std::size_t role) {
  std::vector<RankId> ranks;
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank) {
    if (program.role_of[rank].index() == role) ranks.emplace_back(static_cast<std::int64_t>(rank));
  }
  return ranks;
}

std::string categories(const PeakMemory& peak) {
  std::vector<std::string> parts;
  for (std::size_t c = 0; c < peak.by_category.size(); ++c) {
    if (peak.by_category[c] == 0) continue;
    parts.push_back(fmt::format("{} {}", to_string(static_cast<MemoryCategory>(c)),
                                format_bytes(static_cast<double>(peak.by_category[c]))));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

constexpr std::size_t kListedRoles = 4;  // Of those that don't fit, the worst first.

// A step is written out instruction by instruction; this many of them take a few GiB.
constexpr double kMaxInstructions = 20e6;

void expect_reasonable_size(const Scenario& scenario, const Graph& graph, const Plan& plan) {
  std::vector<double> ops_of_block(static_cast<std::size_t>(graph.block_count()), 0.0);
  for (const Op& op : graph.ops) ops_of_block[static_cast<std::size_t>(op.block)] += 1;
  const PipelineReplica& replica = plan.replicas.front();
  double instructions = 0;
  for (const Stage& stage : replica.stages) {
    for (std::int32_t block = stage.first_block; block < stage.last_block; ++block) {
      instructions +=
          ops_of_block[static_cast<std::size_t>(block)] * static_cast<double>(replica.microbatches);
    }
  }
  if (instructions <= kMaxInstructions) return;
  fail(ErrorKind::kInfeasible,
       "{}: {} micro-batches of {} layers make a Program of about {:.0f} million instructions, more than the "
       "{:.0f} "
       "million that can be simulated; lower global_batch, or raise dp or microbatch",
       file_name(scenario), format_count(replica.microbatches), graph.layers, instructions / 1e6,
       kMaxInstructions / 1e6);
}

// What the plan leaves untried, cheapest first.
std::string remedies(const Plan& plan) {
  std::vector<std::string> remedies;
  const std::vector<Stage>& stages = plan.replicas.front().stages;
  const std::size_t tp = stages.front().ranks.size();
  if (plan.zero_stage == 0 && plan.replicas.size() > 1) remedies.push_back("zero: 1");
  if (tp > 1 && !plan.sequence_parallel) remedies.push_back("sequence_parallel: true");
  if (plan.microbatch_size > 1) {
    remedies.push_back(fmt::format("a smaller microbatch (now {})", plan.microbatch_size));
  }
  if (plan.recompute == Recompute::kNone) remedies.push_back("recompute: full");
  remedies.push_back(fmt::format("a larger tp or pp (now {} and {})", tp, stages.size()));
  return fmt::format("{}", fmt::join(remedies, ", "));
}

}  // namespace

Prepared prepare(const std::filesystem::path& file, const Overrides& overrides) {
  Prepared prepared;
  prepared.scenario = load_scenario(file, overrides);
  const Scenario& scenario = prepared.scenario;
  prepared.graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  try {
    prepared.plan = expand(scenario.plan, prepared.graph, scenario.cluster.gpu_count());
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", file_name(scenario), error.what()));
  }
  const std::vector<std::string> faults = check(prepared.plan, prepared.graph);
  if (!faults.empty()) {
    fail(ErrorKind::kInfeasible, "{}: {}", file_name(scenario),
         fmt::join(faults, fmt::format("\n{}: ", file_name(scenario))));
  }
  expect_reasonable_size(scenario, prepared.graph, prepared.plan);
  prepared.warnings = warnings(prepared.plan, prepared.graph, scenario.cluster);
  return prepared;
}

std::string memory_fault(const Prepared& prepared, const Program& program) {
  const GpuType& gpu = prepared.scenario.cluster.node.gpu;
  std::vector<std::pair<std::size_t, PeakMemory>> over;
  for (std::size_t role = 0; role < program.roles.size(); ++role) {
    const PeakMemory peak = peak_memory(program.roles[role]);
    if (peak.bytes > gpu.memory_bytes) over.emplace_back(role, peak);
  }
  if (over.empty()) return "";
  std::stable_sort(over.begin(), over.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text = fmt::format("{}: out of memory: {} has {}, but", file_name(prepared.scenario), gpu.name,
                                 format_bytes(static_cast<double>(gpu.memory_bytes)));
  for (std::size_t i = 0; i < std::min(over.size(), kListedRoles); ++i) {
    const auto& [role, peak] = over[i];
    text += fmt::format("\n  {} (ranks {}) needs {}, {} too much: {}", program.roles[role].name,
                        rank_list(ranks_of(program, role)), format_bytes(static_cast<double>(peak.bytes)),
                        format_bytes(static_cast<double>(peak.bytes - gpu.memory_bytes)), categories(peak));
  }
  if (over.size() > kListedRoles) text += fmt::format("\n  and {} more stages", over.size() - kListedRoles);
  return text + "\nWhat could help: " + remedies(prepared.plan);
}

}  // namespace orrery

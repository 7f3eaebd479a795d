#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/units.hpp"
#include "model/program_ranks.hpp"
#include "planner/memory.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

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
  if (plan.recompute == Recompute::kNone) remedies.push_back("recompute: full or auto");
  remedies.push_back(fmt::format("a larger tp or pp (now {} and {})", tp, stages.size()));
  return fmt::format("{}", fmt::join(remedies, ", "));
}

}  // namespace

std::string memory_fault(const Program& program, const Plan& plan, const GpuType& gpu) {
  std::vector<std::pair<std::size_t, PeakMemory>> over;
  for (std::size_t role = 0; role < program.roles.size(); ++role) {
    const PeakMemory peak = peak_memory(program.roles[role]);
    if (peak.bytes > gpu.memory_bytes) over.emplace_back(role, peak);
  }
  if (over.empty()) return "";
  std::stable_sort(over.begin(), over.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text = fmt::format("out of memory: {} has {}, but", gpu.name,
                                 format_bytes(static_cast<double>(gpu.memory_bytes)));
  for (std::size_t i = 0; i < std::min(over.size(), kListedRoles); ++i) {
    const auto& [role, peak] = over[i];
    text += fmt::format("\n  {} (ranks {}) needs {}, {} too much: {}", program.roles[role].name,
                        format_ranks(ranks_of(program, role)), format_bytes(static_cast<double>(peak.bytes)),
                        format_bytes(static_cast<double>(peak.bytes - gpu.memory_bytes)), categories(peak));
  }
  if (over.size() > kListedRoles) text += fmt::format("\n  and {} more stages", over.size() - kListedRoles);
  return text + "\nWhat could help: " + remedies(plan);
}

}  // namespace orrery

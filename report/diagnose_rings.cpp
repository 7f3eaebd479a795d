// Rings of logs and graph files, over the links of a matrix or topology file (A3).

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "report/diagnose_rules.hpp"
#include "report/ring_report.hpp"
#include "topology/import/host_node.hpp"

namespace orrery::diagnosis {
namespace {

// Worth a word only when another order is this much faster.
constexpr double kWorthwhile = 1.05;

std::string edges_text(const std::vector<RingEdge>& ring) {
  std::vector<std::string> slow;
  for (const RingEdge& edge : ring)
    if (edge.path > nccl::PathClass::kNvb)
      slow.push_back(fmt::format("gpu{} -> gpu{} {}", edge.from, edge.to, nccl::to_string(edge.path)));
  return fmt::format("{}", fmt::join(slow, ", "));
}

struct Leaving {
  std::size_t nvlink = 0, sockets = 0;  // Edges off NVLink, and those of them that cross sockets.
};
Leaving leaving(const RingCost& cost) {
  Leaving count;
  for (const auto& ring : cost.rings)
    for (const RingEdge& edge : ring) {
      count.nvlink += edge.path > nccl::PathClass::kNvb;
      count.sockets += edge.path >= nccl::PathClass::kSys;
    }
  return count;
}

// Islands of NVLink: every ring has to leave each of them once, so that its slowest edge is as slow whatever
// the order; but edges that leave without need load the sockets' link, and other traffic with them.
void look_at_islands(const TopologyFile& rings_file, const RingReport& report, Findings& found) {
  const Leaving given = leaving(report.given_cost), best = leaving(report.best_cost);
  if (best.nvlink == 0 || given.nvlink <= best.nvlink) return;
  Finding finding;
  finding.id = "islands-torn";
  finding.title =
      fmt::format("{} edges of the rings leave NVLink where {} would do", given.nvlink, best.nvlink);
  const std::string version =
      rings_file.log && !rings_file.log->version.empty() ? "NCCL " + rings_file.log->version + ": " : "";
  for (std::size_t r = 0; r < report.given_cost.rings.size() && finding.evidence.size() < 3; ++r)
    finding.evidence.push_back(
        {rings_file.name, 0,
         fmt::format("{}ring {}: off NVLink are {}", version, fmt::join(report.given[r], " "),
                     edges_text(report.given_cost.rings[r]))});
  finding.cause = fmt::format(
      "GPUs are joined in islands, and the order goes in and out of them: {} edges cross sockets instead of "
      "{}. "
      "Versions of NCCL's search differ in this",
      given.sockets, best.sockets);
  finding.remedy = fmt::format(
      "use the order {} (orrery topo rings --graph, NCCL_GRAPH_FILE), or another version; keep tensor "
      "parallelism "
      "inside the islands",
      fmt::join(report.best.front(), " "));
  finding.now_gb_per_s = report.given_cost.bytes_per_s * 1e-9;
  finding.mended_gb_per_s = report.best_cost.bytes_per_s * 1e-9;
  finding.rate_of = fmt::format("{} ring{}", report.given.size(), report.given.size() == 1 ? "" : "s");
  found.push_back(std::move(finding));
}

void compare(const TopologyFile& rings_file, const NodeType& node, const std::string& machine,
             Findings& found) {
  std::vector<RingOrder> rings = rings_of(rings_file);
  const auto names_missing_gpu = [&](const RingOrder& order) {
    return std::ranges::any_of(order, [&](std::int32_t gpu) { return gpu < 0 || gpu >= node.gpus; });
  };
  if (rings.empty()) return;
  if (std::ranges::any_of(rings, names_missing_gpu)) {
    Finding finding;
    finding.id = "other-machine";
    finding.title = fmt::format("the rings of {} have GPUs that {} lacks", rings_file.name, machine);
    finding.evidence.push_back({rings_file.name, 0, fmt::format("{}", fmt::join(rings.front(), " "))});
    finding.cause = "the files are of different machines, or CUDA_VISIBLE_DEVICES renumbers the GPUs";
    finding.remedy = "take matrix and log from the same host and job";
    found.push_back(std::move(finding));
    return;
  }
  const RingReport report = ring_report(node, std::move(rings), rings_file.name);
  if (report.best_cost.bytes_per_s < kWorthwhile * report.given_cost.bytes_per_s) {
    look_at_islands(rings_file, report, found);
    return;
  }
  Finding finding;
  finding.id = "ring-order";
  finding.title = "the rings leave fast links that another order would use";
  for (std::size_t r = 0; r < report.given_cost.rings.size() && finding.evidence.size() < 3; ++r)
    if (const std::string edges = edges_text(report.given_cost.rings[r]); !edges.empty())
      finding.evidence.push_back(
          {rings_file.name, 0,
           fmt::format("ring {}: off NVLink are {}", fmt::join(report.given[r], " "), edges)});
  if (finding.evidence.empty())
    finding.evidence.push_back(
        {rings_file.name, 0, fmt::format("ring {}", fmt::join(report.given.front(), " "))});
  finding.cause = fmt::format("the order of the ranks doesn't follow the links of {}", machine);
  finding.remedy = fmt::format(
      "use the order {}: CUDA_VISIBLE_DEVICES={}, or the graph file that orrery topo rings "
      "--graph writes (NCCL_GRAPH_FILE)",
      fmt::join(report.best.front(), " "), fmt::join(report.best.front(), ","));
  finding.now_gb_per_s = report.given_cost.bytes_per_s * 1e-9;
  finding.mended_gb_per_s = report.best_cost.bytes_per_s * 1e-9;
  finding.rate_of = fmt::format("{} ring{}", report.given.size(), report.given.size() == 1 ? "" : "s");
  found.push_back(std::move(finding));
}

}  // namespace

void look_at_ring_orders(std::span<const TopologyFile> files, Findings& found) {
  for (const TopologyFile& machine : files) {
    if (machine.hosts.size() != 1 || machine.kind == TopologyFileKind::kNcclLog) continue;
    std::vector<ImportNote> notes;
    std::optional<NodeType> node;
    try {
      node = node_of(machine.hosts.front(), gpu_type_of(machine.hosts.front(), notes), notes);
    } catch (const Error&) {
      continue;  // Reading the file has said what is missing.
    }
    for (const TopologyFile& rings : files) compare(rings, *node, machine.name, found);
  }
}

}  // namespace orrery::diagnosis

// GPUs joined in pairs by NVLink bridges: every ring over all of them leaves NVLink once a pair, and over
// which NUMA nodes it then goes is up to the version of NCCL's search.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "report/diagnose_rules.hpp"
#include "topology/nccl_search.hpp"

namespace orrery::diagnosis {
namespace {

constexpr double kWorthwhile = 1.05;
// Between these the search or its paths changed; older ones aren't followed to the letter.
constexpr std::array kMinors{18, 20, 22, 25, 27, 30};

// Every GPU has NVLinks to one other, which has its links to it.
bool in_pairs(const Host& host) {
  for (const HostGpu& gpu : host.gpus) {
    if (gpu.nvlinks.size() != 1 || gpu.pci < 0) return false;
    const auto peer = std::ranges::find_if(host.gpus, [&](const HostGpu& other) {
      return other.pci >= 0 &&
             host.pci[static_cast<std::size_t>(other.pci)].bus_id == gpu.nvlinks.front().target;
    });
    if (peer == host.gpus.end() || &*peer == &gpu) return false;
  }
  return host.gpus.size() >= 4;
}

std::set<std::int32_t> numa_nodes(const Host& host) {
  std::set<std::int32_t> nodes;
  for (const HostGpu& gpu : host.gpus) nodes.insert(host.pci[static_cast<std::size_t>(gpu.pci)].cpu);
  return nodes;
}

struct Searched {
  std::int32_t minor = 0;
  double gb_per_s = 0;
  std::string order;
};

std::optional<Searched> search(const Host& host, std::int32_t minor) {
  nccl::SystemOptions options;
  options.nccl_minor = minor;
  options.compute_capability = 80;
  try {
    const nccl::Graph ring = nccl::search_graphs(nccl::make_system(host, options)).ring;
    if (ring.channels.empty()) return std::nullopt;
    return Searched{minor, static_cast<double>(ring.channels.size()) * ring.node_gb_per_s,
                    fmt::format("{}", fmt::join(ring.channels.front().gpus, " "))};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void look_at_islands(const Host& host, Findings& found) {
  if (!in_pairs(host)) return;
  std::vector<Searched> all;
  for (const std::int32_t minor : kMinors)
    if (const auto one = search(host, minor)) all.push_back(*one);
  if (all.empty()) return;
  const Searched& worst = *std::ranges::min_element(all, {}, &Searched::gb_per_s);
  const Searched& best = *std::ranges::max_element(all, {}, &Searched::gb_per_s);
  if (best.gb_per_s < kWorthwhile * worst.gb_per_s) return;
  Finding finding;
  finding.id = "nvlink-islands";
  finding.title = fmt::format("{} pairs of GPUs on {} NUMA nodes: rings depend on NCCL's version",
                              host.gpus.size() / 2, numa_nodes(host).size());
  for (const Searched* one : {&worst, &best})
    finding.evidence.push_back(
        {host.source, 0,
         fmt::format("NCCL 2.{}: {:.4g} GB/s, ring {}", one->minor, one->gb_per_s, one->order)});
  finding.cause =
      "a ring leaves NVLink once for every pair and crosses NUMA nodes there; versions of the search "
      "lay it differently";
  finding.remedy = fmt::format(
      "use NCCL 2.{}, or its graphs with others (orrery topo convert --to nccl-graph, NCCL_GRAPH_FILE); keep "
      "tensor parallelism inside the pairs",
      best.minor);
  finding.now_gb_per_s = worst.gb_per_s;
  finding.mended_gb_per_s = best.gb_per_s;
  finding.rate_of = fmt::format("rings over the {} GPUs of a node", host.gpus.size());
  found.push_back(std::move(finding));
}

}  // namespace orrery::diagnosis

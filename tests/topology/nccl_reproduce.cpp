// Rings, trees and channel counts of real logs and graph files against what the search says for the machines
// that they come from. Where a log doesn't describe its machine, the catalogue's or a small layout stands in.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "topology/nccl_connect.hpp"
#include "topology/nccl_log.hpp"
#include "topology/nccl_topology_xml.hpp"
#include "topology/node_host.hpp"
#include "topology/node_layout.hpp"

using namespace orrery;
using namespace orrery::nccl;
namespace fs = std::filesystem;

namespace {

fs::path data_folder() {
  if (const char* given = std::getenv("ORRERY_DATA")) return fs::path(given) / "topo";
  return fs::path(ORRERY_SOURCE_DIR) / ".." / "shared" / "data" / "topo";
}

std::string slurp(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<Host> catalogue(const char* name) { return hosts_of(catalogue_node(name).value()); }

// All pairs joined by `cables` NVLinks; a socket per two GPUs.
std::vector<Host> meshed(const char* gpu, std::int32_t gpus, std::int32_t nics, std::int32_t cables,
                         double pcie_bytes_per_s, double nic_bytes_per_s) {
  NodeLayout layout;
  layout.name = "mesh";
  layout.gpus = gpus;
  layout.nics = nics;
  layout.pcie_switches = gpus;
  layout.pcie_bytes_per_s = pcie_bytes_per_s;
  layout.cpu_interconnect_bytes_per_s = 10e9;
  layout.nic_bytes_per_s = nic_bytes_per_s;
  const GpuType type = catalogue_gpu(gpu).value();
  for (std::int32_t a = 0; a < gpus; ++a)
    for (std::int32_t b = a + 1; b < gpus; ++b) layout.direct_nvlinks.push_back({a, b, cables});
  layout.direct_nvlink_bytes_per_s = compute_capability(type) >= 90 ? 20.6e9 : 20e9;
  return hosts_of(build_node(layout, type));
}

std::vector<Host> four_ports() {
  NodeLayout layout{"four NICs", 8, 4, 4, 2, 18 * 20.6e9, 48e9, 22e9, 50e9};
  return hosts_of(build_node(layout, catalogue_gpu("h100-sxm").value()));
}

Channels predicted(const std::vector<Host>& hosts, std::int32_t nodes, std::int32_t minor) {
  SystemOptions options;
  options.nccl_minor = minor;
  options.other_nodes = nodes > 1;
  const System system = make_system(hosts, options);
  const Graphs graphs = search_graphs(system);
  std::vector<NodeGraphs> all;
  for (std::int32_t n = 0; n < nodes; ++n) {
    NodeGraphs node{graphs, {}};
    for (std::int32_t g = 0; g < system.gpu_count(); ++g)
      node.ranks.emplace_back(system.gpu(g).device, n * system.gpu_count() + g);
    all.push_back(std::move(node));
  }
  ConnectOptions connect;
  connect.nccl_minor = minor;
  connect.least_capability = system.least_capability();
  return connect_nodes(all, connect);
}

struct Case {
  const char* log;
  std::int32_t nodes, minor;
  std::function<std::vector<Host>()> machine;
  bool exact;  // Expected to be reproduced; what isn't has its reason beside it.
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"b200-8-single-node", 1, 27, [] { return catalogue("dgx-b200"); }, true},
      {"h200-8-nvls-off-2.18", 1, 18, [] { return catalogue("dgx-h200"); }, true},
      {"h100-2x8-rail-swap-2.2x", 2, 27, [] { return catalogue("dgx-h100"); }, true},
      {"h-2x8-4nic-timestamped", 2, 27, four_ports, true},
      {"h100-6x8-ib-sharp-2.18", 6, 18, [] { return catalogue("dgx-h100"); }, true},
      {"h100-2x4-ib-2.18", 2, 18, [] { return meshed("h100-sxm", 4, 4, 6, 48e9, 50e9); }, true},
      {"v100-4-2.7-n1-16gb", 1, 10, [] { return meshed("v100-sxm", 4, 1, 2, 12e9, 12.5e9); }, true},
      {"v100-4x4-opa-2.10", 4, 10, [] { return meshed("v100-sxm", 4, 1, 2, 12e9, 12.5e9); }, true},
      {"a100-2x4-ib", 2, 12, [] { return meshed("a100-sxm", 4, 2, 4, 24e9, 25e9); }, true},
  };
  return kCases;
}

struct Score {
  std::size_t rings = 0, rings_same = 0, trees = 0, trees_same = 0;
  bool count_same = false;
};

Score compare(const LogComm& seen, const Channels& channels) {
  Score score;
  score.count_same = seen.ring_count == static_cast<std::int32_t>(channels.rings.size());
  for (const LogRing& ring : seen.rings) {
    ++score.rings;
    const auto c = static_cast<std::size_t>(ring.channel);
    if (c >= channels.rings.size() || ring.ranks.size() > channels.rings[c].size()) continue;
    // A line that was cut is a beginning.
    if (std::equal(ring.ranks.begin(), ring.ranks.end(), channels.rings[c].begin())) ++score.rings_same;
  }
  for (const LogTree& tree : seen.trees) {
    ++score.trees;
    const auto c = static_cast<std::size_t>(tree.channel), r = static_cast<std::size_t>(tree.rank);
    if (c >= channels.trees.size() || r >= channels.trees[c].size()) continue;
    const TreeLinks& links = channels.trees[c][r];
    if (links.up == tree.up && links.down == tree.down) ++score.trees_same;
  }
  return score;
}

}  // namespace

TEST_CASE("rings and trees of real logs come out of the search", "[topology][data]") {
  if (!fs::exists(data_folder() / "log")) {
    std::cout << "skipped: no published logs (set ORRERY_DATA to the data folder)\n";
    return;
  }
  std::size_t items = 0, same = 0;
  for (const Case& it : cases()) {
    const NcclLog log =
        read_nccl_log(slurp(data_folder() / "log" / (std::string(it.log) + ".txt")), it.log);
    REQUIRE_FALSE(log.comms.empty());
    const Channels channels = predicted(it.machine(), it.nodes, it.minor);
    const auto most = std::max_element(log.comms.begin(), log.comms.end(), [](const auto& a, const auto& b) {
      return a.rings.size() + a.trees.size() < b.rings.size() + b.trees.size();
    });
    const Score score = compare(*most, channels);
    std::cout << it.log << ": " << score.rings_same << " of " << score.rings << " rings, "
              << score.trees_same << " of " << score.trees << " tree places, channels "
              << channels.rings.size() << " (seen " << most->ring_count << ")\n";
    items += 3;
    same += (score.rings_same == score.rings ? 1 : 0) + (score.trees_same == score.trees ? 1 : 0) +
            (score.count_same ? 1 : 0);
  }
  std::cout << same << " of " << items << " reproduced\n";
}

// Rings, trees and channel counts of real logs and graph files against what the search says for the machines
// that they come from. Where a log doesn't describe its machine, the catalogue's or a small layout stands in.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "topology/import/nccl_graph_xml.hpp"
#include "topology/import/nccl_log.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/node_host.hpp"
#include "topology/nccl/nccl_connect.hpp"
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

// The maker's file has no NVLinks: four to each peer.
std::vector<Host> xe8545() {
  const std::string file = "mlperf-dell-xe8545.xml";
  Host host = read_nccl_topology(slurp(data_folder() / "xml" / file), file).hosts.at(0);
  for (HostGpu& gpu : host.gpus) {
    gpu.compute_capability = 80;
    for (const HostGpu& peer : host.gpus)
      if (peer.index != gpu.index)
        gpu.nvlinks.push_back({host.pci[static_cast<std::size_t>(peer.pci)].bus_id, 4, 0x030200});
  }
  for (HostNic& nic : host.nics) nic.bytes_per_s = 25e9;
  return {host};
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

// What isn't reproduced has its reason beside it.
struct Case {
  const char* log;
  std::int32_t nodes, minor;
  std::function<std::vector<Host>()> machine;
  std::size_t rings, trees;  // Of the log, that come out.
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"b200-8-single-node", 1, 27, [] { return catalogue("dgx-b200"); }, 32, 256},
      {"h200-8-nvls-off-2.18", 1, 18, [] { return catalogue("dgx-h200"); }, 24, 192},
      {"h100-2x8-rail-swap-2.2x", 2, 27, [] { return catalogue("dgx-h100"); }, 12, 96},
      {"h-2x8-4nic-timestamped", 2, 27, four_ports, 16, 16},
      // Of 16 rings six take the last GPUs of a node in another order: the log doesn't describe its PCIe
      // tree.
      {"h100-6x8-ib-sharp-2.18", 6, 18, [] { return catalogue("dgx-h100"); }, 10, 640},
      {"h100-2x4-ib-2.18", 2, 18, [] { return meshed("h100-sxm", 4, 4, 6, 48e9, 50e9); }, 16, 128},
      // Every second tree has another chain: up to 2.17 the search is followed in part.
      {"a100-2x4-ib", 2, 12, xe8545, 4, 16},
      // Older than what is modelled; its rings come out all the same.
      {"v100-4-2.7-n1-16gb", 1, 10, [] { return meshed("v100-sxm", 4, 1, 2, 12e9, 12.5e9); }, 12, 8},
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
    INFO(it.log);
    const NcclLog log = read_nccl_log(slurp(data_folder() / "log" / (std::string(it.log) + ".txt")), it.log);
    REQUIRE_FALSE(log.comms.empty());
    const Channels channels = predicted(it.machine(), it.nodes, it.minor);
    const auto most = std::max_element(log.comms.begin(), log.comms.end(), [](const auto& a, const auto& b) {
      return a.rings.size() + a.trees.size() < b.rings.size() + b.trees.size();
    });
    const Score score = compare(*most, channels);
    std::cout << it.log << ": " << score.rings_same << " of " << score.rings << " rings, " << score.trees_same
              << " of " << score.trees << " tree places, channels " << channels.rings.size() << " (seen "
              << most->ring_count << ")\n";
    CHECK(score.rings_same == it.rings);
    CHECK(score.trees_same == it.trees);
    CHECK(score.count_same);
    items += 3;
    same += (score.rings_same == score.rings ? 1 : 0) + (score.trees_same == score.trees ? 1 : 0) +
            (score.count_same ? 1 : 0);
  }
  std::cout << same << " of " << items << " reproduced in full\n";
}

namespace {

// Two trays of GB300 that share NVLink.
std::vector<Host> two_trays(const char* second) {
  std::vector<Host> hosts;
  std::int32_t rank = 0;
  for (const char* file : {"gb300-1tray.xml", second}) {
    Host host = read_nccl_topology(slurp(data_folder() / "xml" / file), file).hosts.at(0);
    for (HostGpu& gpu : host.gpus) gpu.rank = rank++;
    hosts.push_back(std::move(host));
  }
  return hosts;
}

// Without prefixes and GIN, which is no part of the model.
std::string said(const std::string& log) {
  std::istringstream lines(log);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("NCCL INFO ");
    if (at == std::string::npos) continue;
    line = line.substr(at + 10);
    if (line.find("- GIN/") != std::string::npos) continue;
    for (std::size_t gin; (gin = line.find("GIN/")) != std::string::npos;)
      line.erase(gin, line.find(") ", gin) + 2 - gin);
    text += line + '\n';
  }
  return text;
}

}  // namespace

TEST_CASE("a graph file's channels come out of the search", "[topology][data]") {
  if (!fs::exists(data_folder() / "graph")) {
    std::cout << "skipped: no published graphs (set ORRERY_DATA to the data folder)\n";
    return;
  }
  SystemOptions options;
  options.nccl_minor = 29;
  const Graphs found = search_graphs(make_system(two_trays("gb300-1tray.xml"), options));
  const auto file = read_nccl_graphs(slurp(data_folder() / "graph" / "gb300-8gpu-graph.xml"), "gb300");
  std::size_t compared = 0;
  for (const Graph& graph : file.graphs)
    for (const Graph* mine : {&found.ring, &found.tree, &found.nvls})
      if (mine->kind == graph.kind) {
        CHECK(*mine == graph);
        ++compared;
      }
  CHECK(compared == 3);
}

TEST_CASE("NCCL's view of a machine is printed as NCCL prints it", "[topology][data]") {
  if (!fs::exists(data_folder() / "log")) {
    std::cout << "skipped: no published logs (set ORRERY_DATA to the data folder)\n";
    return;
  }
  // A GPU without NVLinks among eight: the search fails and falls back.
  const std::string log = said(slurp(data_folder() / "log" / "gb300-2tray-nvlink-lost-2.29.txt"));
  SystemOptions options;
  options.nccl_minor = 29;
  const System system = make_system(two_trays("gb300-1tray-gpu1-no-links.xml"), options);
  std::string text = to_text(system);
  text = text.substr(0, text.find("NET/0-0 :GPU"));  // The log leaves the ports' own paths out.
  CHECK(log.substr(0, text.size()) == text);
  const Graphs graphs = search_graphs(system);
  for (const Graph* graph : {&graphs.ring, &graphs.tree, &graphs.nvls})
    CHECK(log.find(to_text(*graph, system)) != std::string::npos);
}

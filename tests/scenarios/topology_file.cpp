// Clusters whose nodes come from the files of a real machine.
#include <catch2/catch.hpp>

#include <fstream>

#include "base/error.hpp"
#include "scenarios/scenario.hpp"
#include "topology/node_routes.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

Scenario load(const std::string& name, const Overrides& overrides = {}) {
  return load_scenario(std::string(ORRERY_SOURCE_DIR) + "/scenarios/" + name, overrides);
}

}  // namespace

TEST_CASE("a node can come from NCCL's topology file", "[scenarios][topology]") {
  const Scenario scenario = load("topology-h200x2.yaml");
  CHECK(scenario.cluster.node.gpus == 2);
  CHECK(scenario.cluster.node.gpu.name == "H200-SXM-141GB");
  // 18 links of 20.6 GB/s each way through the switch.
  const NodeRoutes routes = find_routes(scenario.cluster.node);
  const auto link = static_cast<std::size_t>(routes.between[1].arcs.front() / 2);
  CHECK(scenario.cluster.node.links[link].bytes_per_s == Approx(370.8e9));
  CHECK_FALSE(scenario.notes.empty());
}

TEST_CASE("a matrix gives the same NVLinks as the topology file", "[scenarios][topology]") {
  const NodeType xml = load("topology-h200x2.yaml").cluster.node;
  const NodeType smi = load("topology-smi-matrix.yaml").cluster.node;
  const auto rate = [](const NodeType& node) {
    return node.links[static_cast<std::size_t>(find_routes(node).between[1].arcs.front() / 2)].bytes_per_s;
  };
  CHECK(rate(smi) == Approx(rate(xml)));
}

TEST_CASE("what can't be a node names the file and the reason", "[scenarios][topology]") {
  CHECK_THROWS_WITH(load("topology-h200x2.yaml", {"cluster.topology=nowhere.xml"}),
                    Contains("cluster.topology") && Contains("nowhere.xml"));
  CHECK_THROWS_WITH(load("topology-h200x2.yaml", {"cluster.node=dgx-h100"}), Contains("topology"));
  const std::string p2p = std::string(ORRERY_SOURCE_DIR) + "/tests/data/topo/h200x2/smi-p2p-r.txt";
  CHECK_THROWS_WITH(load("topology-h200x2.yaml", {"cluster.topology=" + p2p}),
                    Contains("describes no machine"));
}

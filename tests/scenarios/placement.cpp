// plan.placement: keys, lists, and what they do to the cluster's nodes.

#include <catch2/catch.hpp>

#include "scenarios/show.hpp"
#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("placements are read, and bind the GPUs of every node", "[scenarios]") {
  const Scenario scenario = parse_small(
      {"plan.placement={policy: graph, nic: remote, numa: round-robin, max_pcie_hops: 2, hop_group: dp}"});
  CHECK(scenario.placement.policy == PlacementPolicy::kGraph);
  CHECK(scenario.placement.max_pcie_hops == 2);
  CHECK(scenario.placement.hop_group == "dp");
  CHECK(scenario.cluster.node.nic_of_gpu == std::vector<std::int32_t>{4, 5, 6, 7, 0, 1, 2, 3});
  CHECK(scenario.cluster.node.cpu_of_gpu == std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1});
  const Scenario plain = parse_small();
  CHECK(plain.placement.policy == PlacementPolicy::kLinear);
  CHECK(plain.cluster.node.nic_of_gpu.empty());
  const Scenario listed =
      parse_small({"plan.placement={ranks: [7, 6, 5, 4, 3, 2, 1, 0], numa: [1, 1, 1, 1, 0, 0, 0, 0]}"});
  CHECK(listed.placement.policy == PlacementPolicy::kList);
  CHECK(listed.cluster.node.cpu_of_gpu == std::vector<std::int32_t>{1, 1, 1, 1, 0, 0, 0, 0});
}

TEST_CASE("a placement that can't be is refused where it stands", "[scenarios]") {
  const auto message = [](const std::string& placement) {
    return message_of(kSmall, {"plan.placement=" + placement});
  };
  CHECK_THAT(message("{policy: grpah}"), Contains("plan.placement.policy: is") && Contains("graph"));
  CHECK_THAT(message("{policy: list}"), Contains("plan.placement.ranks: missing"));
  CHECK_THAT(message("{ranks: [0, x]}"), Contains("plan.placement.ranks: is") && Contains("number of a GPU"));
  CHECK_THAT(message("{nic: [0, 1]}"), Contains("has 2 entries"));
  CHECK_THAT(message("{numa: [0, 0, 0, 0, 0, 0, 0, 2]}"), Contains("there is no 2"));
  CHECK_THAT(message("{numa: far}"), Contains("plan.placement.numa: is"));
  CHECK_THAT(message("{max_pcie_hops: -1}"), Contains("plan.placement.max_pcie_hops: is"));
}

TEST_CASE("show tells the placement", "[scenarios]") {
  const Scenario scenario =
      parse_small({"plan.placement={ranks: [7, 6, 5, 4, 3, 2, 1, 0], nic: round-robin, max_pcie_hops: 9}"});
  const Graph graph = build_forward(scenario.model, DType::kBf16);
  Plan plan = expand(scenario.plan, graph, 8);
  plan.device_of = scenario.placement.ranks;
  const std::string text = normal_form(scenario, graph, plan);
  CHECK_THAT(text, Contains("placement: list, at most 9 PCIe hops in a tp group"));
  CHECK_THAT(text, Contains("GPUs by rank: 7 x 8 step -1"));
  CHECK_THAT(text, Contains("NICs by GPU of a node: 0-7"));
}

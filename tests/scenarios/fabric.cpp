// Networks between nodes in a scenario file.

#include <catch2/catch.hpp>

#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

Cluster cluster_of(const std::string& nodes, const std::string& fabric) {
  return parse_small({"cluster.nodes=" + nodes, "cluster.fabric=" + fabric}).cluster;
}

std::string fault_of(const std::string& nodes, const std::string& fabric) {
  return message_of(kSmall, {"cluster.nodes=" + nodes, "cluster.fabric=" + fabric});
}

}  // namespace

TEST_CASE("each kind of fabric is read with its keys", "[scenarios]") {
  const Fabric tree =
      cluster_of("16",
                 "{kind: fat-tree, nodes_per_leaf: 2, uplinks: 4, routing: ecmp, hash_seed: 7, "
                 "tiers: [{joins: 2, oversubscription: 2, uplinks: 3}, {joins: 2}]}")
          .fabric;
  CHECK(tree.kind == FabricKind::kFatTree);
  CHECK(tree.uplinks == 4);
  CHECK(tree.routing == FabricRouting::kEcmp);
  CHECK(tree.hash_seed == 7);
  REQUIRE(tree.tiers.size() == 2);
  CHECK((tree.tiers[0].joins == 2 && tree.tiers[0].oversubscription == 2 && tree.tiers[0].uplinks == 3));
  CHECK((tree.tiers[1].joins == 2 && tree.tiers[1].oversubscription == 1 && tree.tiers[1].uplinks == 0));

  const Fabric torus = cluster_of("12", "{kind: torus, torus: [3, 4], link: 100GB/s}").fabric;
  CHECK(torus.torus == std::vector<std::int32_t>{3, 4});
  CHECK(torus.link_bytes_per_s == 100e9);

  const Fabric dragonfly =
      cluster_of("12", "{kind: dragonfly, nodes_per_leaf: 1, switches_per_group: 3, global_links: 2}").fabric;
  CHECK(dragonfly.switches_per_group == 3);
  CHECK(dragonfly.global_links == 2);
  CHECK(cluster_of("4", "rail-only").fabric.kind == FabricKind::kRailOnly);
}

TEST_CASE("a fabric that can't be built says why", "[scenarios]") {
  CHECK_THAT(fault_of("15", "{kind: torus, torus: [4, 4]}"), Contains("4 x 4 makes not 15 nodes"));
  CHECK_THAT(fault_of("16", "{kind: torus}"), Contains("cluster.fabric.torus: missing"));
  CHECK_THAT(fault_of("16", "{kind: torus, torus: [4, x]}"), Contains("expected nodes along each dimension"));
  CHECK_THAT(fault_of("16", "{kind: torus, torus: [4, 4], tiers: [{joins: 2}]}"),
             Contains("belongs to fat trees and rails, not to torus"));
  CHECK_THAT(fault_of("16", "{kind: fat-tree, global_links: 2}"), Contains("belongs to a dragonfly"));
  CHECK_THAT(fault_of("64", "{kind: dragonfly, nodes_per_leaf: 1, switches_per_group: 2, global_links: 2}"),
             Contains("give a switch more global_links"));
  CHECK_THAT(fault_of("16", "{kind: fat-tree, tiers: [{uplinks: 2}]}"), Contains("joins: missing"));
  CHECK_THAT(message_of(kSmall, {"cluster={node: pcie-h100, nodes: 4, nvlink_domain: 2}"}),
             Contains("not every GPU has an NVLink to an NVSwitch"));
}

TEST_CASE("trays of an NVLink domain count as one node for collectives", "[scenarios]") {
  const Cluster trays = parse_small({"cluster={node: gb200-tray, nodes: 36, nvlink_domain: 18}"}).cluster;
  CHECK(trays.gpu_count() == 144);
  CHECK(trays.gpus_per_domain() == 72);
}

TEST_CASE("what orrery fabric sends is read", "[scenarios]") {
  const TrafficRequest traffic =
      parse_small({"traffic={patterns: [all-to-all, ring], jobs: 3, placement: interleaved, queue_pairs: 4, "
                   "seeds: 5, post: 2us}"})
          .traffic;
  CHECK(traffic.patterns == std::vector<TrafficPattern>{TrafficPattern::kAllToAll, TrafficPattern::kRing});
  CHECK((traffic.jobs == 3 && traffic.interleaved && traffic.queue_pairs == 4 && traffic.seeds == 5));
  CHECK(traffic.post_s == Approx(2e-6));
  CHECK_THAT(message_of(kSmall, {"traffic={patterns: [star]}"}), Contains("expected ring, permutation"));
  CHECK_THAT(message_of(kSmall, {"traffic={patterns: []}"}), Contains("is empty"));
}

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "simulator/fabric_load.hpp"

using namespace orrery;

namespace {

constexpr double kNic = 50e9;

// Nodes with so many NICs, `per_leaf` under a leaf switch with an uplink per NIC.
Cluster small(std::int32_t nodes, std::int32_t per_leaf, std::int32_t nics = 1, double oversubscription = 1) {
  NodeShape shape;
  shape.gpus = shape.nics = nics;
  Cluster cluster;
  cluster.name = "small";
  cluster.node = make_node(shape, catalogue_gpu("h100-sxm").value());
  cluster.nodes = nodes;
  cluster.fabric.kind = FabricKind::kFatTree;
  cluster.fabric.nodes_per_leaf = per_leaf;
  cluster.fabric.oversubscription = oversubscription;
  return cluster;
}

std::vector<std::int32_t> all_nodes(const Cluster& cluster) {
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(cluster.nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

FabricLoadOptions routed(FabricRouting routing, std::uint64_t seed = 0) {
  FabricLoadOptions options;
  options.routing = routing;
  options.seed = seed;
  return options;
}

}  // namespace

TEST_CASE("flows that hash to one uplink share it", "[fabric]") {
  const Cluster cluster = small(8, 4);
  const auto fabric = make_fabric_routes(cluster, false);
  std::vector<FabricFlow> flows;
  for (std::int32_t node = 0; node < 4; ++node) flows.push_back({{node, 0}, {node + 4, 0}});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<std::size_t> path;
    std::vector<int> on_path(4);
    for (const FabricFlow& flow : flows) {
      path.push_back(
          static_cast<std::size_t>(fabric->hashed_path(0, 1, flow_hash(flow.from, flow.to, 0, seed))));
      ++on_path[path.back()];
    }
    const FabricLoad load = load_fabric(cluster, *fabric, flows, routed(FabricRouting::kEcmp, seed));
    for (std::size_t f = 0; f < flows.size(); ++f)
      CHECK(load.bytes_per_s[f] == Approx(kNic / on_path[path[f]]));
    CHECK(on_path[path[load.slowest]] == *std::ranges::max_element(on_path));
    for (const double share : load.utilisation) CHECK((share == Approx(1) || share == 0));
  }
}

TEST_CASE("adaptive routing is the ideal: full rate, or the share that oversubscription leaves", "[fabric]") {
  for (const double oversubscription : {1.0, 4.0}) {
    const Cluster cluster = small(12, 4, 2, oversubscription);
    const auto fabric = make_fabric_routes(cluster, false);
    // Every node to the one under the next leaf switch, so that all traffic goes up.
    std::vector<FabricFlow> flows;
    for (std::int32_t node = 0; node < 12; ++node)
      for (std::int32_t nic = 0; nic < 2; ++nic) flows.push_back({{node, nic}, {(node + 4) % 12, nic}});
    const FabricLoad load = load_fabric(cluster, *fabric, flows, routed(FabricRouting::kAdaptive));
    for (const double rate : load.bytes_per_s) CHECK(rate == Approx(kNic / oversubscription).epsilon(1e-6));
    for (const double share : load.utilisation) CHECK(share == Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("ECMP, then feedback, then adaptive", "[fabric]") {
  const Cluster cluster = small(64, 16);
  const auto fabric = make_fabric_routes(cluster, false);
  double ecmp = 0, eight_pairs = 0, feedback = 0, adaptive = 0;
  constexpr std::uint64_t kSeeds = 8;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto flows = traffic(TrafficPattern::kPermutation, all_nodes(cluster), 1, seed);
    const auto rate = [&](const FabricLoadOptions& options) {
      return mean(load_fabric(cluster, *fabric, flows, options).bytes_per_s) / kNic / kSeeds;
    };
    FabricLoadOptions options = routed(FabricRouting::kEcmp, seed);
    ecmp += rate(options);
    options.queue_pairs = 8;
    eight_pairs += rate(options);
    feedback += rate(routed(FabricRouting::kFeedback, seed));
    adaptive += rate(routed(FabricRouting::kAdaptive));
  }
  CHECK(adaptive == Approx(1).epsilon(1e-6));
  CHECK(ecmp < 0.75);
  CHECK(ecmp < eight_pairs);
  CHECK(ecmp < feedback);
  CHECK(feedback < adaptive);
}

TEST_CASE("where every queue is full feedback has nothing to choose", "[fabric]") {
  const Cluster cluster = small(8, 4, 1, 4);  // One uplink per leaf switch.
  const auto fabric = make_fabric_routes(cluster, false);
  const auto flows = traffic(TrafficPattern::kRing, std::vector<std::int32_t>{0, 4, 1, 5}, 1, 0);
  const FabricLoad feedback = load_fabric(cluster, *fabric, flows, routed(FabricRouting::kFeedback));
  CHECK(feedback.settled);
  CHECK(feedback.rounds == 1);
  CHECK(feedback.bytes_per_s ==
        load_fabric(cluster, *fabric, flows, routed(FabricRouting::kEcmp)).bytes_per_s);
}

TEST_CASE("an all-to-all by leaf pairs is that of all its flows", "[fabric]") {
  for (const double oversubscription : {1.0, 2.0}) {
    const Cluster cluster = small(12, 4, 2, oversubscription);
    const auto fabric = make_fabric_routes(cluster, false);
    const auto flows = traffic(TrafficPattern::kAllToAll, all_nodes(cluster), 2, 0);
    REQUIRE(flows.size() == 12 * 11 * 2);
    const FabricLoad one_by_one = load_fabric(cluster, *fabric, flows, routed(FabricRouting::kAdaptive));
    const LeafPairLoad folded =
        load_all_to_all(cluster, *fabric, all_nodes(cluster), routed(FabricRouting::kAdaptive));
    CHECK(folded.mean() == Approx(mean(one_by_one.bytes_per_s)).epsilon(1e-4));
    CHECK(folded.slowest() == Approx(one_by_one.bytes_per_s[one_by_one.slowest]).epsilon(1e-4));
    for (std::size_t link = 0; link < folded.utilisation.size(); ++link)
      CHECK(folded.utilisation[link] == Approx(one_by_one.utilisation[link]).epsilon(1e-4));
  }
  // Of 11 messages of a NIC 8 leave its leaf switch. At 2:1 the four NICs' uplinks of 2 · 50 GB/s carry 32
  // connections per rail of 100 / 32 GB/s each: less than a NIC's 50 / 11. The three others take what is left
  // of the NIC: (50 − 8 · 3.125) / 3.
  const Cluster cluster = small(12, 4, 1, 2);
  const auto fabric = make_fabric_routes(cluster, false);
  const auto load = load_all_to_all(cluster, *fabric, all_nodes(cluster), routed(FabricRouting::kAdaptive));
  CHECK(load.slowest() == Approx(100e9 / 32).epsilon(1e-6));
  CHECK(load.mean() == Approx((8 * 100e9 / 32 + 25e9) / 11).epsilon(1e-6));
}

TEST_CASE("interleaved jobs slow each other on oversubscribed uplinks, packed ones don't", "[fabric]") {
  // Four nodes to a leaf switch with one uplink. Interleaved, both rings cross it once in each direction.
  const Cluster cluster = small(8, 4, 1, 4);
  const auto fabric = make_fabric_routes(cluster, false);
  const auto slowdowns = [&](bool interleaved) {
    std::vector<FabricFlow> flows;
    std::int32_t job = 0;
    for (const auto& nodes : place_jobs(2, 4, interleaved)) {
      const auto more = traffic(TrafficPattern::kRing, nodes, 1, 0, job++);
      flows.insert(flows.end(), more.begin(), more.end());
    }
    return job_slowdowns(cluster, *fabric, flows, routed(FabricRouting::kAdaptive));
  };
  CHECK(slowdowns(false) == std::vector<double>{1, 1});
  const auto interleaved = slowdowns(true);
  REQUIRE(interleaved.size() == 2);
  CHECK(interleaved[0] == Approx(2).epsilon(1e-6));
  CHECK(interleaved[1] == Approx(2).epsilon(1e-6));
}

TEST_CASE("a permutation sends once from each node and once to it, never to itself", "[fabric]") {
  const std::vector<std::int32_t> nodes{3, 5, 8, 9, 20};
  const auto flows = traffic(TrafficPattern::kPermutation, nodes, 3, 42);
  REQUIRE(flows.size() == 15);
  for (std::int32_t nic = 0; nic < 3; ++nic) {
    std::vector<std::int32_t> to;
    for (const FabricFlow& flow : flows) {
      if (flow.from.nic != nic) continue;
      CHECK(flow.to.nic == nic);
      CHECK(flow.to.node != flow.from.node);
      to.push_back(flow.to.node);
    }
    std::ranges::sort(to);
    CHECK(to == nodes);
  }
}

TEST_CASE("a flow between rails that nothing joins is refused", "[fabric]") {
  Cluster cluster = small(4, 2, 2);
  cluster.fabric.kind = FabricKind::kRailOnly;
  const auto fabric = make_fabric_routes(cluster, false);
  const std::vector<FabricFlow> flows{{{0, 0}, {1, 1}}};
  CHECK_THROWS_WITH(load_fabric(cluster, *fabric, flows, {}), Catch::Contains("keeps rails apart"));
}

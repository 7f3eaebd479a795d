#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "topology/fabric_routes.hpp"

using namespace orrery;

namespace {

constexpr double kNic = 50e9;

Cluster dgx_h100(std::int32_t nodes, FabricKind kind) {
  Cluster cluster;
  cluster.name = "test";
  cluster.node = catalogue_node("dgx-h100").value();
  cluster.nodes = nodes;
  cluster.fabric.kind = kind;
  cluster.fabric.nodes_per_leaf = 4;
  cluster.fabric.hop_latency_s = 130e-9;
  return cluster;
}

Cluster torus(std::vector<std::int32_t> sizes) {
  std::int32_t nodes = 1;
  for (const std::int32_t size : sizes) nodes *= size;
  Cluster cluster = dgx_h100(nodes, FabricKind::kTorus);
  cluster.fabric.torus = std::move(sizes);
  return cluster;
}

// Groups of two switches of two nodes, each with `global` cables out.
Cluster dragonfly(std::int32_t groups, std::int32_t global) {
  Cluster cluster = dgx_h100(4 * groups, FabricKind::kDragonfly);
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.switches_per_group = 2;
  cluster.fabric.global_links = global;
  return cluster;
}

Cluster three_tiers(FabricKind kind) {
  Cluster cluster = dgx_h100(15, kind);
  cluster.fabric.nodes_per_leaf = 2;
  cluster.fabric.uplinks = 2;
  cluster.fabric.oversubscription = 2;
  cluster.fabric.tiers = {{2, 2.0, 3}};
  return cluster;
}

std::vector<Cluster> all_fabrics() {
  return {dgx_h100(9, FabricKind::kRailOptimised),
          dgx_h100(9, FabricKind::kFatTree),
          dgx_h100(9, FabricKind::kRailOnly),
          three_tiers(FabricKind::kRailOptimised),
          three_tiers(FabricKind::kFatTree),
          three_tiers(FabricKind::kRailOnly),
          dragonfly(3, 2),
          dragonfly(5, 2),
          torus({4, 3}),
          torus({2, 3, 4}),
          torus({2, 2})};
}

// "a →x b".
std::pair<std::string, std::string> ends(const std::string& name) {
  return {name.substr(0, name.find(' ')), name.substr(name.rfind(' ') + 1)};
}

// Bandwidth of all links out of a set of switches.
template <class Inside>
double leaving(const FabricRoutes& fabric, const std::map<LinkInstance, double>& rates, Inside&& inside) {
  double sum = 0;
  for (LinkInstance link = 0; link < fabric.link_count(); ++link) {
    const auto [from, to] = ends(fabric.link_name(link));
    if (inside(from) && !inside(to)) sum += rates.contains(link) ? rates.at(link) : 0;
  }
  return sum;
}

// Of the links that any path uses.
std::map<LinkInstance, double> rates(const FabricRoutes& fabric) {
  std::map<LinkInstance, double> found;
  std::vector<PathLink> links;
  for (std::int32_t from = 0; from < fabric.leaf_count(); ++from)
    for (std::int32_t to = 0; to < fabric.leaf_count(); ++to)
      for (std::int64_t path = 0; from != to && path < fabric.path_count(from, to); ++path) {
        links.clear();
        fabric.append_path(from, to, path, links);
        for (const PathLink& link : links) found[link.link] = link.bytes_per_s;
      }
  return found;
}

std::vector<std::string> names(const Router& router, const Path& path) {
  std::vector<std::string> words;
  for (const PathLink& link : path.links) words.push_back(router.name(link.link));
  return words;
}

void check_path(const FabricRoutes& fabric, std::int32_t from, std::int32_t to, std::int64_t path) {
  std::vector<PathLink> links;
  fabric.append_path(from, to, path, links);
  REQUIRE(static_cast<std::int32_t>(links.size()) == fabric.switches(from, to) - 1);
  std::set<LinkInstance> used;
  std::string at = fabric.leaf_name(from);
  for (const PathLink& link : links) {
    REQUIRE((link.link >= 0 && link.link < fabric.link_count()));
    const auto [a, b] = ends(fabric.link_name(link.link));
    REQUIRE(a == at);
    at = b;
    used.insert(link.link);
  }
  REQUIRE(at == fabric.leaf_name(to));
  REQUIRE(used.size() == links.size());
}

}  // namespace

TEST_CASE("every path leads from its start to its end and uses no link twice", "[topology]") {
  for (const Cluster& cluster : all_fabrics())
    for (const bool bundled : {true, false}) {
      INFO(to_string(cluster.fabric.kind) << (bundled ? ", bundled" : ", cable by cable"));
      const auto fabric = make_fabric_routes(cluster, bundled);
      for (std::int32_t from = 0; from < fabric->leaf_count(); ++from)
        for (std::int32_t to = 0; to < fabric->leaf_count(); ++to) {
          const std::int64_t paths = fabric->path_count(from, to);
          REQUIRE(paths == fabric->path_count(to, from));
          REQUIRE(fabric->switches(from, to) == fabric->switches(to, from));
          if (cluster.fabric.kind != FabricKind::kRailOnly) REQUIRE(paths >= 1);
          if (from == to || paths == 0) continue;
          std::set<std::vector<LinkInstance>> different;
          for (std::int64_t path = 0; path < paths; ++path) {
            check_path(*fabric, from, to, path);
            std::vector<PathLink> links;
            fabric->append_path(from, to, path, links);
            std::vector<LinkInstance> crossed;
            for (const PathLink& link : links) crossed.push_back(link.link);
            different.insert(crossed);
          }
          REQUIRE(static_cast<std::int64_t>(different.size()) == paths);
          REQUIRE(fabric->usual_path(from, to) < paths);
          REQUIRE(fabric->hashed_path(from, to, 12345) < paths);
        }
    }
}

TEST_CASE("links of a fabric are named apart", "[topology]") {
  for (const Cluster& cluster : all_fabrics())
    for (const bool bundled : {true, false}) {
      const auto fabric = make_fabric_routes(cluster, bundled);
      std::set<std::string> seen;
      for (LinkInstance link = 0; link < fabric->link_count(); ++link) seen.insert(fabric->link_name(link));
      CHECK(static_cast<LinkInstance>(seen.size()) == fabric->link_count());
    }
}

TEST_CASE("every GPU reaches every other one, in both directions over as many links", "[topology]") {
  for (Cluster cluster : all_fabrics())
    for (const FabricRouting routing : {FabricRouting::kAdaptive, FabricRouting::kEcmp}) {
      cluster.fabric.routing = routing;
      const Router router(cluster);
      for (std::int32_t from = 0; from < cluster.gpu_count(); from += 5)
        for (std::int32_t to = 0; to < cluster.gpu_count(); to += 3) {
          const Path path = router.path(from, to), back = router.path(to, from);
          std::set<LinkInstance> used;
          for (const PathLink& link : path.links) used.insert(link.link);
          REQUIRE(used.size() == path.links.size());
          REQUIRE(path.links.size() == back.links.size());
          REQUIRE(path.latency_s == Approx(back.latency_s));
        }
    }
}

TEST_CASE("three tiers: the trunks narrow by each oversubscription", "[topology]") {
  // Leaf: 2 nodes with 8 NICs, 2:1. A pod joins two leaf switches, 2:1 again. 15 nodes: the last leaf has
  // one.
  const auto tree = make_fabric_routes(three_tiers(FabricKind::kFatTree), true);
  CHECK(tree->leaf_count() == 8);
  CHECK(tree->switches(0, 1) == 3);
  CHECK(tree->switches(0, 2) == 5);
  std::vector<PathLink> links;
  tree->append_path(0, 7, 0, links);
  REQUIRE(links.size() == 4);
  CHECK(links[0].bytes_per_s == Approx(2 * 8 * kNic / 2));
  CHECK(links[1].bytes_per_s == Approx(4 * 8 * kNic / 4));
  CHECK(links[2].bytes_per_s == Approx(3 * 8 * kNic / 4));
  CHECK(links[3].bytes_per_s == Approx(1 * 8 * kNic / 2));
  CHECK(tree->link_name(links[0].link) == "leaf0 → tier1.0");
  CHECK(tree->link_name(links[1].link) == "tier1.0 → spine");
  // Cable by cable: 2 uplinks of a leaf, 3 of each of the pod's 2 switches; so 6 paths between pods.
  // Bisection: two pods of four have 2 · 6 cables of 4 · 8 · 50 / 4 / 6 GB/s.
  const auto cables = make_fabric_routes(three_tiers(FabricKind::kFatTree), false);
  CHECK(cables->path_count(0, 1) == 2);
  CHECK(cables->path_count(0, 2) == 6);
  const double half = leaving(*cables, rates(*cables), [](const std::string& name) {
    return name.starts_with("leaf0") || name.starts_with("leaf1") || name.starts_with("leaf2") ||
           name.starts_with("leaf3") || name.starts_with("tier1.0") || name.starts_with("tier1.1");
  });
  CHECK(half == Approx(2 * 4 * 8 * kNic / 4));
}

TEST_CASE("without joined rails traffic changes rails over NVLink", "[topology]") {
  Cluster cluster = dgx_h100(6, FabricKind::kRailOnly);
  const Router router(cluster);
  const Path path = router.path(3, 5 * 8 + 6);
  CHECK(names(router, path) ==
        std::vector<std::string>{
            "node0.gpu3 → node0.nvswitch0", "node0.nvswitch0 → node0.gpu6", "node0.gpu6 → node0.pcie6",
            "node0.pcie6 → node0.nic6", "node0.nic6 → leaf6.0", "leaf6.0 → spine6", "spine6 → leaf6.1",
            "leaf6.1 → node5.nic6", "node5.nic6 → node5.pcie6", "node5.pcie6 → node5.gpu6"});
  CHECK(path.latency_s == Approx(0.6e-6 + 2.7e-6 + 3 * 130e-9));
  CHECK(router.path(3, 5 * 8 + 3).links.size() == 8);  // On its own rail as in a rail-optimised fabric.
  CHECK_FALSE(router.parts_join());
  const auto fabric = make_fabric_routes(cluster, true);
  CHECK(fabric->path_count(fabric->leaf({0, 3}), fabric->leaf({0, 4})) == 0);
}

TEST_CASE("dragonfly: one cable to the gateway, one between groups, one on", "[topology]") {
  // Three groups of two switches with two global cables each: 4 cables to 2 other groups, so 2 to each.
  const auto fabric = make_fabric_routes(dragonfly(3, 2), false);
  CHECK(fabric->leaf_count() == 6);
  CHECK(fabric->switches(0, 1) == 2);
  // Of group 0 the cables 0, 1 of switch 0 and 2, 3 of switch 1 lead to groups 1, 2, 1, 2. Group 1's lead to
  // groups 2, 0, 2, 0: cable 1 of its switch 0 and cable 3 of its switch 1 come back.
  CHECK(fabric->switches(0, 2) == 2);  // Straight from switch 0 of group 0 to that of group 1.
  CHECK(fabric->path_count(0, 2) == 1);
  CHECK(fabric->switches(0, 3) == 3);  // One local hop on either side, so two paths.
  CHECK(fabric->path_count(0, 3) == 2);
  // Per group one cable inside and 2 · 2 out: 3 · 1 + 3 pairs · 2 cables, both directions.
  CHECK(fabric->link_count() == 2 * (3 + 6));
  CHECK(leaving(*fabric, rates(*fabric),
                [](const std::string& name) { return name.starts_with("group0"); }) == Approx(4 * kNic));
  const Router router(dragonfly(3, 2));
  CHECK(router.path(0, 6 * 8).latency_s == Approx(2.7e-6 + 3 * 130e-9));  // Node 6 is on switch 3.
  CHECK_THROWS_WITH(make_fabric_routes(dragonfly(6, 2), false), Catch::Contains("global_links"));
}

TEST_CASE("torus: hops are distances and paths the orders of the dimensions", "[topology]") {
  const auto fabric = make_fabric_routes(torus({4, 4}), false);
  CHECK(fabric->switches(0, 5) == 3);     // (1, 1): 2 hops,
  CHECK(fabric->path_count(0, 5) == 2);   // x first or y first.
  CHECK(fabric->switches(0, 3) == 2);     // (3, 0) is a neighbour the other way round.
  CHECK(fabric->switches(0, 10) == 5);    // (2, 2): 4 hops,
  CHECK(fabric->path_count(0, 10) == 8);  // two orders, two ways round in each dimension.
  // 8 NICs over 4 neighbours: 2 NICs' rate each. Two halves of 4 x 2 nodes share 2 cuts of 4 cables.
  CHECK(leaving(*fabric, rates(*fabric), [](const std::string& name) {
          return std::stoi(name.substr(6)) < 8;
        }) == Approx(2 * 4 * 2 * kNic));
  CHECK(Router(torus({4, 4})).path(0, 10 * 8).latency_s == Approx(2.7e-6 + 5 * 130e-9));
  const auto cube = make_fabric_routes(torus({3, 4, 5}), false);
  CHECK(cube->switches(0, 1 + 2 * 3 + 2 * 12) == 1 + 1 + 2 + 2);
  CHECK(cube->path_count(0, 1 + 2 * 3 + 2 * 12) == 6 * 2);
  Cluster wrong = torus({4, 4});
  wrong.nodes = 15;
  CHECK_THROWS_WITH(make_fabric_routes(wrong, false), Catch::Contains("4 x 4 makes not 15 nodes"));
}

TEST_CASE("ECMP spreads connections over uplinks as balls fall into bins", "[topology]") {
  // 32 NICs of one leaf switch, each to the NIC of a node under the other one, over 32 uplinks. The expected
  // number of uplinks in use is 32 · (1 − (31/32)^32) = 20.41 with a variance below 32/e · (1 − 2/e) = 3.1:
  // the mean over 400 seeds has a standard deviation of 0.09. The most connections on one uplink are 3.5 on
  // average (M. Mitzenmacher, E. Upfal: Probability and Computing, tables by simulation).
  Cluster cluster = dgx_h100(8, FabricKind::kFatTree);
  const auto fabric = make_fabric_routes(cluster, false);
  REQUIRE(fabric->path_count(0, 1) == 32);
  double used = 0, most = 0;
  constexpr int kSeeds = 400;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::vector<int> bins(32);
    for (std::int32_t nic = 0; nic < 32; ++nic) {
      const FabricPort from{nic / 8, nic % 8}, to{4 + nic / 8, nic % 8};
      const std::uint64_t hash = flow_hash(from, to, 0, static_cast<std::uint64_t>(seed));
      ++bins[static_cast<std::size_t>(fabric->hashed_path(0, 1, hash))];
    }
    used += 32 - static_cast<double>(std::ranges::count(bins, 0));
    most += *std::ranges::max_element(bins);
  }
  CHECK(used / kSeeds == Approx(20.41).margin(0.3));
  CHECK(most / kSeeds == Approx(3.5).margin(0.2));
}

TEST_CASE("with ECMP paths are cables, and the seed moves them", "[topology]") {
  Cluster cluster = dgx_h100(8, FabricKind::kRailOptimised);
  cluster.fabric.routing = FabricRouting::kEcmp;
  std::set<std::string> ups;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    cluster.fabric.hash_seed = seed;
    const Router router(cluster);
    const Path path = router.path(3, 5 * 8 + 3);
    CHECK(path.links[3].bytes_per_s == Approx(kNic));
    const std::string up = router.name(path.links[3].link);
    CHECK(up.starts_with("leaf3.0 → spine."));
    CHECK(router.place(path.links[3].link).kind == LinkPlace::Kind::kTrunk);
    ups.insert(up);
  }
  CHECK(ups.size() == 4);  // Four nodes per leaf, so four uplinks; 64 seeds miss none.
}

TEST_CASE("trays of a rack share their NVSwitches", "[topology]") {
  Cluster trays;
  trays.name = "trays";
  trays.node = catalogue_node("gb200-tray").value();
  trays.nodes = 36;
  trays.nodes_per_nvlink_domain = 18;
  Cluster racks = trays;
  racks.node = catalogue_node("gb200-nvl72").value();
  racks.nodes = 2;
  racks.nodes_per_nvlink_domain = 1;
  const Router by_tray(trays), by_rack(racks);
  CHECK(trays.gpu_count() == racks.gpu_count());
  const Path near = by_tray.path(1, 71), same = by_rack.path(1, 71);
  CHECK(names(by_tray, near) ==
        std::vector<std::string>{"node0.gpu1 → node0.nvswitch0", "node17.nvswitch0 → node17.gpu3"});
  CHECK(near.latency_s == same.latency_s);
  CHECK(near.bytes_per_s() == same.bytes_per_s());
  CHECK_FALSE(near.crosses_network);
  const Path far = by_tray.path(1, 73);
  CHECK(far.crosses_network);
  CHECK(far.latency_s == by_rack.path(1, 73).latency_s);
  CHECK(far.bytes_per_s() == by_rack.path(1, 73).bytes_per_s());
  trays.node = catalogue_node("pcie-h100").value();
  CHECK_THROWS_WITH(Router(trays), Catch::Contains("NVSwitch"));
}

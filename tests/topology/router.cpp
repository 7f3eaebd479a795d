#include <catch2/catch.hpp>

#include <limits>
#include <set>

#include "base/error.hpp"
#include "topology/cluster.hpp"

using namespace orrery;

namespace {

Cluster dgx_h100(std::int32_t nodes, FabricKind kind = FabricKind::kRailOptimised) {
  Cluster cluster;
  cluster.name = "test";
  cluster.node = catalogue_node("dgx-h100").value();
  cluster.nodes = nodes;
  cluster.fabric.kind = kind;
  cluster.fabric.nodes_per_leaf = 4;
  cluster.fabric.hop_latency_s = 130e-9;
  return cluster;
}

std::vector<std::string> names(const Router& router, const Path& path) {
  std::vector<std::string> words;
  for (const PathLink& link : path.links) words.push_back(router.name(link.link));
  return words;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("inside a node traffic takes NVLink", "[topology]") {
  const Router router(dgx_h100(2));
  const Path path = router.path(9, 14);
  CHECK(names(router, path) == Names{"node1.gpu1 → node1.nvswitch0", "node1.nvswitch0 → node1.gpu6"});
  CHECK(path.bytes_per_s() == Approx(370.8e9));
  CHECK(path.latency_s == Approx(0.6e-6));
  CHECK_FALSE(path.crosses_network);
  CHECK(router.path(3, 3).links.empty());
  CHECK(router.path(3, 3).bytes_per_s() == std::numeric_limits<double>::infinity());
}

TEST_CASE("on its rail and in its pod traffic passes one leaf switch", "[topology]") {
  const Router router(dgx_h100(8));
  const Path path = router.path(3, 8 + 3);
  CHECK(names(router, path) == Names{"node0.gpu3 → node0.pcie3", "node0.pcie3 → node0.nic3",
                                     "node0.nic3 → leaf3.0", "leaf3.0 → node1.nic3",
                                     "node1.nic3 → node1.pcie3", "node1.pcie3 → node1.gpu3"});
  CHECK(path.bytes_per_s() == Approx(48e9));         // PCIe Gen5 x16 is narrower than 400 Gb/s.
  CHECK(path.latency_s == Approx(2.7e-6 + 130e-9));  // Four PCIe segments, two NICs, one switch.
  CHECK(path.crosses_network);
}

TEST_CASE("other pods and other rails are reached through the spine", "[topology]") {
  const Router router(dgx_h100(8));
  const Path pod = router.path(3, 5 * 8 + 3);
  CHECK(names(router, pod)[3] == "leaf3.0 → spine");
  CHECK(names(router, pod)[4] == "spine → leaf3.1");
  CHECK(pod.latency_s == Approx(2.7e-6 + 3 * 130e-9));
  CHECK(pod.links[3].bytes_per_s == Approx(4 * 50e9));

  const Path rail = router.path(3, 8 + 4);
  CHECK(names(router, rail)[3] == "leaf3.0 → spine");
  CHECK(names(router, rail)[4] == "spine → leaf4.0");
}

TEST_CASE("in a fat tree all NICs of a node hang on one leaf switch", "[topology]") {
  Cluster cluster = dgx_h100(6, FabricKind::kFatTree);
  cluster.fabric.oversubscription = 2;
  const Router router(cluster);
  CHECK(names(router, router.path(3, 8 + 4))[2] == "node0.nic3 → leaf0");
  CHECK(router.path(3, 8 + 4).links.size() == 6);
  const Path far = router.path(3, 5 * 8 + 4);
  CHECK(far.links[3].bytes_per_s == Approx(4 * 8 * 50e9 / 2));  // Four nodes under leaf0,
  CHECK(far.links[4].bytes_per_s == Approx(2 * 8 * 50e9 / 2));  // two under leaf1.
}

TEST_CASE("two GPUs under one PCIe switch with two NICs each use their own", "[topology]") {
  Cluster cluster = dgx_h100(2);
  cluster.node = catalogue_node("dgx-a100").value();
  const Router router(cluster);
  CHECK(names(router, router.path(0, 8))[2] == "node0.nic0 → leaf0.0");
  CHECK(names(router, router.path(1, 9))[2] == "node0.nic1 → leaf1.0");
  cluster.node = catalogue_node("dgx-v100").value();  // One NIC for two GPUs.
  const Router shared(cluster);
  CHECK(names(shared, shared.path(0, 8))[2] == names(shared, shared.path(1, 9))[2]);
}

TEST_CASE("link instances are unique, named apart and within the count", "[topology]") {
  const Router router(dgx_h100(8));
  std::set<std::string> seen;
  for (LinkInstance link = 0; link < router.link_count(); ++link) seen.insert(router.name(link));
  CHECK(static_cast<LinkInstance>(seen.size()) == router.link_count());
  // Per node 8 NVLinks, 8 + 8 + 8 PCIe links and 1 between CPUs, 8 cables; 8 rails of 2 leaf switches.
  const auto links = static_cast<LinkInstance>(router.cluster().node.links.size());
  CHECK(links == 8 + 8 + 8 + 8 + 1);
  CHECK(router.link_count() == 2 * (8 * (links + 8) + 16));
}

TEST_CASE("a link instance knows its place", "[topology]") {
  const Cluster cluster = dgx_h100(8);
  const Router router(cluster);
  // GPU 3 of node 0 to that of node 5: NVLink isn't used; up the rail's cable, over leaf, spine and leaf.
  std::vector<LinkPlace> places;
  for (const PathLink& link : router.path(3, 5 * 8 + 3).links) places.push_back(router.place(link.link));
  REQUIRE(places.size() == 8);
  using enum LinkPlace::Kind;
  const auto is = [](const LinkPlace& at, LinkPlace::Kind kind, std::int32_t node, bool forward) {
    return at.kind == kind && at.node == node && at.forward == forward;
  };
  CHECK((is(places[2], kNicCable, 0, true) && places[2].index == 3));
  CHECK((is(places[3], kTrunk, -1, true) && places[3].index == 6));  // Of two leaf switches per rail.
  CHECK((is(places[4], kTrunk, -1, false) && places[4].index == 7));
  CHECK((is(places[5], kNicCable, 5, false) && places[5].index == 3));
  CHECK(places[7].kind == kInNode);
  CHECK(places[7].node == 5);
  const LinkPlace nvlink = router.place(router.path(8, 9).links.front().link);
  CHECK(nvlink.node == 1);
  CHECK(cluster.node.links[static_cast<std::size_t>(nvlink.index)].kind == LinkKind::kNvLink);
}

TEST_CASE("links that can't bind are left out, and the narrowest one never is", "[topology]") {
  Cluster cluster = dgx_h100(8);
  const auto binding = [](const Router& router, std::int32_t from, std::int32_t to) {
    Path path;
    path.latency_s = router.append_binding(from, to, path.links);
    CHECK(path.bytes_per_s() == router.path(from, to).bytes_per_s());
    CHECK(path.latency_s == router.path(from, to).latency_s);
    return path;
  };
  {
    const Router router(cluster);
    // Of GPU-PCIe switch, PCIe switch-NIC (both 48 GB/s) and cable (50 GB/s) only the first carries the host
    // copies too, so it alone can be the narrowest.
    CHECK(names(router, binding(router, 3, 5 * 8 + 3)) ==
          Names{"node0.gpu3 → node0.pcie3", "node5.pcie3 → node5.gpu3"});
    CHECK(binding(router, 0, 1).links.size() == 2);
  }
  cluster.fabric.oversubscription = 2;
  {
    const Router router(cluster);
    CHECK(names(router, binding(router, 3, 5 * 8 + 3)) == Names{"node0.gpu3 → node0.pcie3", "leaf3.0 → spine",
                                                                "spine → leaf3.1",
                                                                "node5.pcie3 → node5.gpu3"});
  }
  cluster.node = catalogue_node("dgx-v100").value();
  {
    const Router router(cluster);  // Two GPUs share switch, NIC link and cable.
    CHECK(names(router, binding(router, 0, 8)) ==
          Names{"node0.gpu0 → node0.pcie0", "node0.pcie0 → node0.nic0", "node1.nic0 → node1.pcie0",
                "node1.pcie0 → node1.gpu0"});
  }
}

TEST_CASE("a host path leads to the nearest CPU", "[topology]") {
  const Router router(dgx_h100(2));
  CHECK(names(router, router.host_path(15, true)) ==
        Names{"node1.gpu7 → node1.pcie7", "node1.pcie7 → node1.cpu1"});
  CHECK(names(router, router.host_path(15, false)) ==
        Names{"node1.cpu1 → node1.pcie7", "node1.pcie7 → node1.gpu7"});
}

TEST_CASE("machines that can't work are refused with what is missing", "[topology]") {
  Cluster cluster = dgx_h100(2);
  cluster.node.links.erase(cluster.node.links.begin());  // gpu0's NVLink: PCIe still reaches everything.
  CHECK(Router(cluster).path(0, 1).links.size() == 4);
  for (std::size_t i = 0; i < cluster.node.links.size(); ++i)
    if (cluster.node.links[i].name == "gpu0-pcie0")
      cluster.node.links.erase(cluster.node.links.begin() + static_cast<std::ptrdiff_t>(i--));
  CHECK_THROWS_WITH(Router(cluster), Catch::Contains("no links lead from gpu0 to gpu1"));

  cluster = dgx_h100(2);
  cluster.fabric.kind = FabricKind::kNone;
  CHECK_THROWS_WITH(Router(cluster), Catch::Contains("no fabric"));

  NodeShape shape;
  shape.nics = 0;
  cluster = dgx_h100(2);
  cluster.node = make_node(shape, catalogue_gpu("l40s").value());
  CHECK_THROWS_WITH(Router(cluster), Catch::Contains("NIC"));
  cluster.nodes = 1;
  CHECK_NOTHROW(Router(cluster));
}

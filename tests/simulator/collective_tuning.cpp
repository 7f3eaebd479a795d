#include "simulator/collective_tuning.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace orrery;
using namespace orrery::nccl;

namespace {

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

Communicator comm(std::int32_t ranks, std::int32_t nodes, Generation generation, ChannelGraph ring,
                  ChannelGraph tree, ChannelGraph nvls = {}) {
  Communicator it;
  it.ranks = ranks;
  it.nodes = nodes;
  it.generation = generation;
  it.ring = ring;
  it.tree = tree;
  it.nvls = nvls;
  return it;
}

Communicator hopper_nodes(std::int32_t nodes) {
  return comm(8 * nodes, nodes, Generation::kHopper, {8, 48, 48}, {8, 48, 48}, {8, 40, 48});
}
Communicator two_h200() { return comm(2, 1, Generation::kHopper, {12, 30, 30}, {12, 60, 60}); }
Communicator eight_h100() { return comm(8, 1, Generation::kHopper, {12, 30, 30}, {12, 30, 30}, {8, 40, 60}); }

// Half of the last digit that was printed.
void check(double value, double printed) {
  CHECK(value == Approx(printed).margin(printed < 1000 ? 0.0501 : 0.501));
}

struct Row {
  std::string name;
  Communicator comm;
  std::vector<Price> tree, ring;  // LL, LL128, Simple.
  Price nvls;                     // Or NVLSTree.
};

std::string chosen(std::int64_t bytes, const Communicator& on) {
  const Choice choice = choose(CollectiveKind::kAllReduce, bytes, on);
  return std::string(to_string(choice.algorithm)) + " " + std::string(to_string(choice.protocol));
}

}  // namespace

TEST_CASE("all-reduce prices are those of NCCL's tuning table", "[simulator]") {
  // Latency in us, bandwidth in GB/s. A100×4 LL and LL128 and all of H200×2 were seen printed by NCCL itself
  // (2.18 and 2.28.3); the others follow from the same formulas, for Intel hosts and plain trees.
  const std::vector<Row> rows{
      {"A100 x4",
       comm(4, 1, Generation::kAmpere, {12, 20, 20}, {12, 20, 20}),
       {{10.4, 29.1}, {21.5, 85.9}, {32.4, 110.4}},
       {{10.2, 58.5}, {25.4, 147.2}, {28.8, 160}},
       {}},
      {"H200 x2",
       two_h200(),
       {{8.0, 61.1}, {16.5, 180.6}, {16.4, 232.2}},
       {{7.8, 141}, {17.8, 331.2}, {15.2, 360}},
       {}},
      {"H100 x8",
       eight_h100(),
       {{15.2, 43.6}, {31.5, 128.8}, {64.4, 165.6}},
       {{15.0, 80.6}, {40.6, 189.3}, {56.0, 205.7}},
       {25, 272}},
      {"H100 2x8",
       hopper_nodes(2),
       {{25.2, 16.6}, {48.5, 124.8}, {92.4, 140.8}},
       {{40.0, 20.8}, {75.2, 156.6}, {131.6, 204.8}},
       {66.8, 246.2}},
      {"H100 4x8",
       hopper_nodes(4),
       {{35.2, 8.7}, {65.5, 98.6}, {120.4, 122.4}},
       {{78.8, 10.5}, {144.4, 151.5}, {282.8, 198.2}},
       {108.6, 187.9}},
      {"H100 16x8",
       hopper_nodes(16),
       {{55.2, 8.7}, {99.5, 98.6}, {176.4, 122.4}},
       {{311.6, 10.3}, {559.6, 148}, {1190, 193.5}},
       {192.2, 183.4}},
      {"H100 64x8",
       hopper_nodes(64),
       {{75.2, 8.7}, {133.5, 98.6}, {232.4, 122.4}},
       {{1243, 10.2}, {2220, 147.1}, {4819, 192.4}},
       {275.8, 182.4}},
  };
  const Protocol protocols[] = {Protocol::kLl, Protocol::kLl128, Protocol::kSimple};
  for (const Row& row : rows) {
    INFO(row.name);
    for (std::size_t p = 0; p < 3; ++p) {
      const Price tree = price(CollectiveKind::kAllReduce, Algorithm::kTree, protocols[p], row.comm);
      const Price ring = price(CollectiveKind::kAllReduce, Algorithm::kRing, protocols[p], row.comm);
      INFO("protocol " << p);
      check(tree.latency_us, row.tree[p].latency_us);
      check(tree.gb_per_s, row.tree[p].gb_per_s);
      check(ring.latency_us, row.ring[p].latency_us);
      check(ring.gb_per_s, row.ring[p].gb_per_s);
    }
    const Algorithm nvls = row.comm.nodes > 1 ? Algorithm::kNvlsTree : Algorithm::kNvls;
    const Price price_of = price(CollectiveKind::kAllReduce, nvls, Protocol::kSimple, row.comm);
    check(price_of.gb_per_s, row.nvls.gb_per_s);
    if (row.nvls.gb_per_s > 0) check(price_of.latency_us, row.nvls.latency_us);
  }
}

TEST_CASE("the cheapest algorithm changes with the size where NCCL's does", "[simulator]") {
  // By powers of two; the first is what two H200 with NCCL 2.28.3 really chose.
  CHECK(chosen(kMiB, two_h200()) == "Ring LL");
  CHECK(chosen(4 * kMiB, two_h200()) == "Ring Simple");
  CHECK(chosen(kMiB, eight_h100()) == "Ring LL");
  CHECK(chosen(2 * kMiB, eight_h100()) == "NVLS Simple");
  CHECK(chosen(128 * kKiB, hopper_nodes(2)) == "Tree LL");
  CHECK(chosen(256 * kKiB, hopper_nodes(2)) == "Tree LL128");
  CHECK(chosen(kMiB, hopper_nodes(2)) == "Tree LL128");
  CHECK(chosen(2 * kMiB, hopper_nodes(2)) == "NVLSTree Simple");
  CHECK(chosen(128 * kKiB, hopper_nodes(4)) == "Tree LL");
  CHECK(chosen(4 * kMiB, hopper_nodes(4)) == "Tree LL128");
  CHECK(chosen(8 * kMiB, hopper_nodes(4)) == "NVLSTree Simple");
  CHECK(chosen(kGiB, hopper_nodes(4)) == "Ring Simple");
  CHECK(chosen(8 * kMiB, hopper_nodes(16)) == "Tree LL128");
  CHECK(chosen(16 * kMiB, hopper_nodes(16)) == "NVLSTree Simple");
  CHECK(chosen(8 * kGiB, hopper_nodes(16)) == "Ring Simple");
  // 64 nodes of H200 over Ethernet: as a user's log shows (nccl#1752).
  CHECK(chosen(16 * kMiB, hopper_nodes(64)) == "Tree LL128");
  CHECK(chosen(32 * kMiB, hopper_nodes(64)) == "NVLSTree Simple");
}

TEST_CASE("what a machine doesn't have isn't chosen", "[simulator]") {
  Communicator pcie = comm(4, 1, Generation::kAmpere, {1, 20, 20}, {1, 20, 20});
  pcie.nvlink = false;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kTree})
    CHECK_FALSE(ll128_is_safe(algorithm, pcie));
  CHECK(price(CollectiveKind::kAllGather, Algorithm::kTree, Protocol::kSimple, eight_h100()).gb_per_s == 0);
  CHECK(price(CollectiveKind::kBroadcast, Algorithm::kNvls, Protocol::kSimple, eight_h100()).gb_per_s == 0);
  CHECK(price(CollectiveKind::kAllReduce, Algorithm::kNvlsTree, Protocol::kSimple, eight_h100()).gb_per_s ==
        0);
}

TEST_CASE("channels are those that NCCL's search finds", "[simulator]") {
  const auto graph_text = [](const ChannelGraph& graph) {
    return std::to_string(graph.channels) + "x" + std::to_string(static_cast<int>(graph.node_gb_per_s)) +
           "/" + std::to_string(static_cast<int>(graph.network_gb_per_s));
  };
  const auto found = [&](const GroupLinks& links) {
    const Communicator it = find_channels(links);
    return graph_text(it.ring) + " " + graph_text(it.tree) + " " + graph_text(it.nvls);
  };
  using enum Generation;
  // Printed by NCCL: A100 on one node, two H200 (graph dump), H100 with eight and with four NDR NICs, GB300.
  CHECK(found({4, 1, kAmpere, true, false, 240}) == "12x20/20 12x20/20 0x0/0");
  CHECK(found({2, 1, kHopper, true, false, 370.8}) == "12x30/30 12x60/30 0x0/0");
  CHECK(found({8, 1, kHopper, true, true, 370.8}) == "12x30/30 12x30/30 8x40/60");
  CHECK(found({8, 1, kBlackwell, true, true, 721.8}) == "16x45/45 16x45/45 8x80/90");
  CHECK(found({16, 2, kHopper, true, true, 370.8, 8, 50}) == "8x48/48 8x48/48 8x40/48");
  CHECK(found({16, 2, kHopper, true, false, 370.8, 4, 50}) == "8x24/24 8x24/24 0x0/0");
  // Eight HDR NICs behind PCIe Gen4, and one slow NIC for one GPU.
  CHECK(found({16, 2, kAmpere, true, false, 240, 8, 24}) == "8x24/24 8x24/24 0x0/0");
  CHECK(found({2, 2, kVolta, false, false, 12, 1, 12}) == "1x12/12 1x12/12 0x0/0");
  // Slower than anything in the list of speeds.
  CHECK(found({2, 1, kAmpere, false, false, 2}) == "1x2/2 1x2/2 0x0/0");
}

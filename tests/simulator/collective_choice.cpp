// NCCL's choices: versions, what may be used, forced ones, threads, and prices from the search.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "simulator/collective_tuning.hpp"
#include "topology/import/node_host.hpp"

using namespace orrery;
using namespace orrery::nccl;

namespace {

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20;

Communicator four_a100(std::int32_t minor) {
  Communicator comm;
  comm.ranks = 4;
  comm.generation = Generation::kAmpere;
  comm.ring = comm.tree = {12, 20, 20};
  comm.nccl_minor = minor;
  return comm;
}

Communicator hopper_nodes(std::int32_t nodes) {
  Communicator comm;
  comm.ranks = 8 * nodes;
  comm.nodes = nodes;
  comm.ring = comm.tree = {8, 48, 48};
  comm.nvls = {8, 40, 48};
  return comm;
}

Price all_reduce(Algorithm algorithm, Protocol protocol, const Communicator& comm) {
  return price(CollectiveKind::kAllReduce, algorithm, protocol, comm);
}

}  // namespace

TEST_CASE("NCCL 2.18 printed these prices on four A100", "[simulator]") {
  // As rounded there: Tree 10.4/29 21.5/86 24.0/110, Ring 10.2/40 25.4/147 28.8/160.
  const Communicator comm = four_a100(18);
  const double tree[3][2] = {{10.4, 29}, {21.5, 86}, {24.0, 110}};
  const double ring[3][2] = {{10.2, 40}, {25.4, 147}, {28.8, 160}};
  for (std::size_t p = 0; p < 3; ++p) {
    const auto protocol = static_cast<Protocol>(p);
    CHECK(all_reduce(Algorithm::kTree, protocol, comm).latency_us == Approx(tree[p][0]).margin(0.0501));
    CHECK(all_reduce(Algorithm::kTree, protocol, comm).gb_per_s == Approx(tree[p][1]).margin(0.501));
    CHECK(all_reduce(Algorithm::kRing, protocol, comm).latency_us == Approx(ring[p][0]).margin(0.0501));
    CHECK(all_reduce(Algorithm::kRing, protocol, comm).gb_per_s == Approx(ring[p][1]).margin(0.501));
  }
}

TEST_CASE("versions differ where NCCL's did", "[simulator]") {
  // H800 with trees forced, eight channels of 22: 8 · 22 · 0.92 · 0.85 / 2 (nccl#1154).
  Communicator h800 = hopper_nodes(4);
  h800.tree = {8, 22, 22};
  CHECK(all_reduce(Algorithm::kTree, Protocol::kSimple, h800).gb_per_s == Approx(68.8).margin(0.05));
  // 2.19 to 2.22: 28 us a step for trees with Simple, without base: 6 steps.
  CHECK(all_reduce(Algorithm::kTree, Protocol::kSimple, four_a100(22)).latency_us == Approx(168));
  CHECK(all_reduce(Algorithm::kTree, Protocol::kSimple, four_a100(23)).latency_us == Approx(32.4));
  // Rings with LL: a quarter of 240 until 2.20, half since: · 4 / 6.
  CHECK(all_reduce(Algorithm::kRing, Protocol::kLl, four_a100(20)).gb_per_s == Approx(40));
  CHECK(all_reduce(Algorithm::kRing, Protocol::kLl, four_a100(21)).gb_per_s == Approx(87.7 * 4 / 6));
  CHECK(all_reduce(Algorithm::kRing, Protocol::kSimple, four_a100(10)).latency_us == Approx(8.4 + 6 * 3.4));
  // NVLS on eight H100 as DGX measured it: 8 · min(40 · 0.85 · 7/8 · 2, 60) of bus bandwidth; 5/6
  // before 2.28.
  Communicator h100 = hopper_nodes(1);
  h100.nvls = {8, 40, 60};
  const auto nvls = [&](std::int32_t minor) {
    h100.nccl_minor = minor;
    return all_reduce(Algorithm::kNvls, Protocol::kSimple, h100).gb_per_s;
  };
  CHECK(nvls(30) * 14 / 8 == Approx(476));
  CHECK(nvls(27) == Approx(8 * 40 * 5.0 / 6 * 8 / 14));
  CHECK(nvls(16) == 0);
}

TEST_CASE("PAT is for one GPU per node", "[simulator]") {
  Communicator comm = hopper_nodes(8);
  comm.ranks = 8;
  comm.ring = comm.tree = {2, 24, 24};
  comm.nvls = {};
  // 8 + 3 · 14 / 3.5 + 2.8 · 8 = 42.4 us; 0.75 · 2 · 24 GB/s.
  const Price pat = price(CollectiveKind::kAllGather, Algorithm::kPat, Protocol::kSimple, comm);
  CHECK(pat.latency_us == Approx(42.4));
  CHECK(pat.gb_per_s == Approx(36));
  CHECK(choose(CollectiveKind::kAllGather, 256 * kKiB, comm).algorithm == Algorithm::kPat);
  comm.variables.pat = 0;
  CHECK(choose(CollectiveKind::kAllGather, 256 * kKiB, comm).algorithm == Algorithm::kRing);
  comm = hopper_nodes(8);
  CHECK(choose(CollectiveKind::kAllGather, 256 * kKiB, comm).algorithm == Algorithm::kRing);
}

TEST_CASE("networks that reduce have CollNet", "[simulator]") {
  Communicator comm = hopper_nodes(4);
  comm.collnet_direct = {8, 40, 48};
  comm.collnet_chain = {8, 48, 48};
  CHECK(all_reduce(Algorithm::kCollNetDirect, Protocol::kSimple, comm).gb_per_s == 0);
  comm.collnet = true;
  // As many heads as GPUs: 8 · 40 · 0.85 / 2; 2 · (3.7 + 0.4 · 7) + 31.
  const Price direct = all_reduce(Algorithm::kCollNetDirect, Protocol::kSimple, comm);
  CHECK(direct.gb_per_s == Approx(136));
  CHECK(direct.latency_us == Approx(44));
  const Price chain = all_reduce(Algorithm::kCollNetChain, Protocol::kSimple, comm);
  CHECK(chain.gb_per_s == Approx(192));
  CHECK(chain.latency_us == Approx(2 * 7 * 2.8 + 30));
  CHECK(all_reduce(Algorithm::kNvls, Protocol::kSimple, comm).latency_us == Approx(43));
  comm.variables.collnet_nodes = 5;
  CHECK(all_reduce(Algorithm::kCollNetChain, Protocol::kSimple, comm).gb_per_s == 0);
}

TEST_CASE("NCCL_ALGO and NCCL_PROTO select as NCCL reads them", "[simulator]") {
  const auto chosen = [](const char* algorithms, const char* protocols = "",
                         CollectiveKind kind = CollectiveKind::kAllReduce) {
    Communicator comm = hopper_nodes(2);
    comm.variables.algorithms = algorithms;
    comm.variables.protocols = protocols;
    const Choice choice = choose(kind, 64 * kMiB, comm);
    return std::string(to_string(choice.algorithm)) + " " + std::string(to_string(choice.protocol));
  };
  CHECK(chosen("") == "NVLSTree Simple");
  CHECK(chosen("ring") == "Ring LL128");
  CHECK(chosen("Tree", "LL128") == "Tree LL128");
  CHECK(chosen("^NVLSTree,Ring", "^simple") == "Tree LL128");
  CHECK(chosen("AllReduce:Tree;AllGather:Ring") == "Tree LL128");
  CHECK(chosen("Ring;AllReduce:Tree") == "Tree LL128");
  CHECK(chosen("AllGather:Ring") == "NVLSTree Simple");
  CHECK_THROWS_AS(chosen("Circle"), Error);
  CHECK_THROWS_AS(chosen("Gather:Ring"), Error);
  CHECK_THROWS_AS(chosen("AllReduce:Tree;Ring"), Error);
  // Nothing is left: an error since 2.24, rings before.
  CHECK_THROWS_AS(chosen("Tree", "", CollectiveKind::kAllGather), Error);
  Communicator old = hopper_nodes(2);
  old.nccl_minor = 23;
  old.variables.algorithms = "Tree";
  CHECK(choose(CollectiveKind::kAllGather, kMiB, old).algorithm == Algorithm::kRing);
}

TEST_CASE("what a call adds up decides too", "[simulator]") {
  const auto chosen = [](const CallTraits& traits) {
    return choose(CollectiveKind::kAllReduce, 64 * kMiB, hopper_nodes(2), traits).algorithm;
  };
  CHECK(chosen({DType::kBf16}) == Algorithm::kNvlsTree);
  CHECK(chosen({DType::kFp32}) == Algorithm::kNvlsTree);
  CHECK(chosen({DType::kFp32, false}) == Algorithm::kRing);       // The switch only sums these.
  CHECK(chosen({DType::kBf16, true, true}) == Algorithm::kRing);  // Nor multiplies.
  CHECK(chosen({DType::kFp8}) == Algorithm::kTree);               // Long rings lose too much.
}

TEST_CASE("an explanation names the runner-up", "[simulator]") {
  const Explanation why = explain(CollectiveKind::kAllReduce, 64 * kMiB, hopper_nodes(2));
  REQUIRE(why.cells.size() == 21);
  REQUIRE(why.second.has_value());
  const Cell &best = why.cells[why.best], &second = why.cells[*why.second];
  CHECK(best.algorithm == Algorithm::kNvlsTree);
  CHECK(why.margin == Approx(second.microseconds / best.microseconds - 1));
  for (const Cell& cell : why.cells)
    if (cell.reason.empty() && &cell != &best) CHECK(cell.microseconds >= second.microseconds);
  CHECK(to_text(why).find("<- chosen") != std::string::npos);
}

TEST_CASE("small calls give up channels, then threads", "[simulator]") {
  // threadThresholds of two H200: ring LL 8 · 2.
  CHECK(thread_threshold(Algorithm::kRing, Protocol::kLl, 2) == 16);
  CHECK(thread_threshold(Algorithm::kTree, Protocol::kLl, 2) == 8);
  CHECK(thread_threshold(Algorithm::kRing, Protocol::kSimple, 2) == 64);
  CHECK(thread_threshold(Algorithm::kCollNetChain, Protocol::kSimple, 2) == 512);
  const Communicator comm = hopper_nodes(1);
  const auto plan = [&](Algorithm algorithm, Protocol protocol, std::int64_t bytes) {
    return plan_call(CollectiveKind::kAllReduce, bytes, {algorithm, protocol, {}}, comm, 24, 16);
  };
  // 24 channels of 512 threads want 64 bytes each: 768 KiB. Half of that: 12.
  CHECK(plan(Algorithm::kRing, Protocol::kSimple, 768 * kKiB).channels == 24);
  CHECK(plan(Algorithm::kRing, Protocol::kSimple, 384 * kKiB).channels == 12);
  CHECK(plan(Algorithm::kRing, Protocol::kSimple, 384 * kKiB).threads == 512 + 32);
  CHECK(plan(Algorithm::kRing, Protocol::kSimple, 1).channels == 1);
  CHECK(plan(Algorithm::kRing, Protocol::kSimple, 1).threads == 96);
  CHECK(plan(Algorithm::kTree, Protocol::kSimple, 1).threads == 640);
  CHECK(plan(Algorithm::kNvls, Protocol::kSimple, 1).channels == 16);
  // 64 KiB of all-reduce are 128 KiB of traffic: four cells of 32 KiB, sixteen with LL.
  CHECK(plan(Algorithm::kTree, Protocol::kLl128, 64 * kKiB).used_channels == 4);
  CHECK(plan(Algorithm::kTree, Protocol::kLl, 64 * kKiB).used_channels == 16);
}

TEST_CASE("prices follow from the search of a machine", "[simulator]") {
  // 16 nodes of DGX H100: the row of the golden table, end to end.
  SystemOptions options;
  options.other_nodes = true;
  const System system = make_system(hosts_of(catalogue_node("dgx-h100").value()), options);
  const Communicator comm = make_communicator(system, search_graphs(system), 128, 16);
  CHECK(comm.plain_tree);
  CHECK(all_reduce(Algorithm::kTree, Protocol::kLl128, comm).gb_per_s == Approx(98.6).margin(0.05));
  CHECK(all_reduce(Algorithm::kRing, Protocol::kSimple, comm).gb_per_s == Approx(193.5).margin(0.05));
  CHECK(all_reduce(Algorithm::kRing, Protocol::kLl128, comm).latency_us == Approx(559.6).margin(0.05));
  CHECK(all_reduce(Algorithm::kNvlsTree, Protocol::kSimple, comm).gb_per_s == Approx(183.4).margin(0.05));
}

TEST_CASE("the closed form has the rings and heads of the search on NVSwitch machines", "[simulator]") {
  // Where it doesn't: machines whose links fit no listed speed (A800, H800), PCIe without NVLink, and trees,
  // whose speed inside a node the search raises up to twice the network's.
  struct Case {
    const char* name;
    std::int32_t nodes;
  };
  for (const Case& it : {Case{"dgx-a100", 1}, Case{"dgx-a100", 4}, Case{"dgx-h100", 1}, Case{"dgx-h100", 4},
                         Case{"dgx-b300", 4}}) {
    INFO(it.name << " x" << it.nodes);
    const NodeType node = catalogue_node(it.name).value();
    const std::int32_t capability = compute_capability(node.gpu);
    SystemOptions options;
    options.other_nodes = it.nodes > 1;
    const System system = make_system(hosts_of(node), options);
    const Communicator found = make_communicator(system, search_graphs(system), 8 * it.nodes, it.nodes);
    GroupLinks links;
    links.ranks = 8 * it.nodes;
    links.nodes = it.nodes;
    links.generation = generation_of(capability);
    links.nvlink = true;
    links.multicast = capability >= 90;
    links.node_gb_per_s = node.links.front().bytes_per_s / 1e9;
    links.nics = node.nics;
    links.nic_gb_per_s = std::min(node.nic_bytes_per_s, capability >= 100  ? 96e9
                                                        : capability >= 90 ? 48e9
                                                                           : 24e9) /
                         1e9;
    const Communicator closed = find_channels(links);
    for (const auto graph : {&Communicator::ring, &Communicator::nvls}) {
      CHECK((found.*graph).channels == (closed.*graph).channels);
      CHECK((found.*graph).node_gb_per_s == Approx((closed.*graph).node_gb_per_s));
      CHECK((found.*graph).network_gb_per_s == Approx((closed.*graph).network_gb_per_s));
    }
  }
}

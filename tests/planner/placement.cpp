// Placements of ranks: bytes counted by hand on four GPUs and two sockets, limits that are kept or refused,
// and METIS against the simple policies.
#include "planner/placement.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planner/lower.hpp"
#include "planner/placement_cost.hpp"
#include "planner/placement_levels.hpp"
#include "planner/placement_search.hpp"
#include "simulator/engine.hpp"
#include "tests/planner/shapes.hpp"
#include "topology/profile.hpp"

namespace orrery {
namespace {

using Catch::Matchers::Contains;
using test::shorthand;
using test::small_llama;

constexpr double kMB = 1e6;

// GPUs 0 and 1, NIC 0 under one switch and CPU, 2 and 3, NIC 1 under the others.
Cluster two_sockets(std::int32_t nodes = 1) {
  NodeShape shape;
  shape.gpus = 4;
  shape.nics = 2;
  Cluster cluster;
  cluster.node = make_node(shape, catalogue_gpu("a100-pcie-80gb").value());
  cluster.nodes = nodes;
  cluster.fabric.kind = FabricKind::kFatTree;
  return cluster;
}

Cluster servers(std::string_view node, std::int32_t nodes) {
  Cluster cluster;
  cluster.node = catalogue_node(node).value();
  cluster.nodes = nodes;
  cluster.fabric.kind = FabricKind::kFatTree;
  return cluster;
}

Program four_ranks() {
  return parse_program(
      "axis tp [0-1] [2-3]\n"
      "axis dp [0,2] [1,3]\n"
      "role all (ranks 0-3):\n"
      "  a = all-reduce 8MB in tp for tensor-parallel\n"
      "  b = all-reduce 8MB in tp for tensor-parallel\n"
      "  g = reduce-scatter 4MB in dp for gradient-reduce\n"
      "  h = copy 1MB to host\n");
}

PlacementRequest policy(PlacementPolicy of) {
  PlacementRequest request;
  request.policy = of;
  return request;
}

PlacementCost cost_of(const RankTraffic& traffic, const Cluster& cluster, const PlacementRequest& request) {
  Cluster bound = cluster;
  bind_hosts(request, bound.node);
  return placement_cost(traffic, PlacementMachine(bound), make_placement(traffic, bound, request).device_of);
}

RankTraffic traffic_of(std::int32_t tp, std::int32_t pp, std::int32_t dp) {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  PlanShorthand plan = shorthand(tp, pp, dp, 4);
  return rank_traffic(lower(graph, expand(plan, graph, tp * pp * dp)));
}

bool permutation(std::vector<std::int32_t> list) {
  std::sort(list.begin(), list.end());
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != static_cast<std::int32_t>(i)) return false;
  }
  return true;
}

template <class Function>
std::string message_of(Function&& function, ErrorKind kind) {
  try {
    function();
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a group's traffic is what a ring sends, in the step and by purpose", "[planner]") {
  const RankTraffic traffic = rank_traffic(four_ranks());
  REQUIRE(traffic.groups.size() == 4);
  // Two all-reduces of 8 MB over two ranks: 2 · 1/2 · 16 MB on each link.
  CHECK(traffic.groups[0].purpose == Purpose::kTensorParallel);
  CHECK(traffic.groups[0].ring_bytes == Approx(16 * kMB));
  // A reduce-scatter of 4 MB: 1/2 of it.
  CHECK(traffic.groups[2].purpose == Purpose::kGradientReduce);
  CHECK(traffic.groups[2].ring_bytes == Approx(2 * kMB));
  REQUIRE(traffic.copies.size() == 4);
  CHECK(traffic.copies[3].to_host_bytes == kMB);
  CHECK(traffic.copies[3].from_host_bytes == 0);
  const RankTraffic messages =
      rank_traffic(parse_program("role a (ranks 0): s = send 3MB to next; x = all-to-all 8MB\n"
                                 "role b (ranks 1): r = recv 3MB from previous; x = all-to-all 8MB\n"));
  REQUIRE(messages.pairs.size() == 1);
  CHECK(messages.pairs[0].from == RankId(0));
  CHECK(messages.pairs[0].to == RankId(1));
  CHECK(messages.pairs[0].bytes == 3 * kMB);
  CHECK(messages.groups[0].pair_bytes == 4 * kMB);  // Half of the buffer is for the other rank.
}

TEST_CASE("bytes that cross sockets, by hand", "[planner]") {
  const RankTraffic traffic = rank_traffic(four_ranks());
  const Cluster cluster = two_sockets();
  // Rings: tp 2 groups · 2 links · 16 MB, dp 2 · 2 · 2 MB; copies 4 · 1 MB.
  const double tensor = 64 * kMB, data = 8 * kMB, host = 4 * kMB;
  const PlacementCost linear = cost_of(traffic, cluster, policy(PlacementPolicy::kLinear));
  CHECK(linear.crossing.bytes == Approx(tensor + data + host));
  CHECK(linear.crossing.numa == Approx(data));
  CHECK(linear.crossing.host == Approx(host));
  CHECK(linear.crossing.network == 0);
  // PCIe at 3/4 of 32 GB/s, two links to a neighbour or to the CPU, four to the other socket's GPUs, and 16
  // GB/s between the CPUs.
  CHECK(linear.link_seconds == Approx((2 * tensor + 4 * data + 2 * host) / 24e9 + data / 16e9));
  // Ranks 0 and 1 of a tensor-parallel group on two sockets, 0 and 2 on one.
  const PlacementCost dealt = cost_of(traffic, cluster, policy(PlacementPolicy::kRoundRobinSockets));
  CHECK(dealt.crossing.numa == Approx(tensor));
  REQUIRE(dealt.axes.size() == 2);
  CHECK(dealt.axes[0].axis == "tp");
  CHECK(dealt.axes[0].mean_hops == 5);
  CHECK(linear.axes[0].mean_hops == 2);
  CHECK(linear.axes[1].largest_hops == 5);
}

TEST_CASE("host memory and NICs count where the binding puts them", "[planner]") {
  const RankTraffic traffic = rank_traffic(four_ranks());
  PlacementRequest request;
  request.numa = HostBinding::kRemote;  // All four copies go to the other CPU.
  CHECK(cost_of(traffic, two_sockets(), request).crossing.numa == Approx((8 + 4) * kMB));
  request.numa = HostBinding::kRoundRobin;  // GPU 1 is bound to CPU 1, GPU 2 to CPU 0; 0 and 3 are at home.
  CHECK(cost_of(traffic, two_sockets(), request).crossing.numa == Approx((8 + 2) * kMB));

  const RankTraffic message = rank_traffic(parse_program(
      "world 8\naxis pp [0,4]\n"
      "role a (ranks 0): s = send 1MB to next\nrole b (ranks 4): r = recv 1MB from previous\n"));
  PlacementRequest bound;
  CHECK(cost_of(message, two_sockets(2), bound).crossing.numa == 0);
  bound.numa = HostBinding::kRemote;  // The NIC reads the GPU under its own switch, not the host's memory.
  CHECK(cost_of(message, two_sockets(2), bound).crossing.numa == 0);
  bound.numa = HostBinding::kNearest;
  bound.nic = HostBinding::kRemote;
  const PlacementCost remote = cost_of(message, two_sockets(2), bound);
  CHECK(remote.crossing.numa == Approx(kMB));
  CHECK(remote.crossing.network == Approx(kMB));
  bound.nic = HostBinding::kList;
  bound.nics = {0, 0, 1, 1};
  CHECK(cost_of(message, two_sockets(2), bound).crossing.numa == 0);
}

TEST_CASE("lists and bindings that don't fit are refused with what is wrong", "[planner]") {
  const RankTraffic traffic = rank_traffic(four_ranks());
  PlacementRequest request = policy(PlacementPolicy::kList);
  const auto message = [&] {
    return message_of([&] { make_placement(traffic, two_sockets(), request); }, ErrorKind::kInput);
  };
  request.ranks = {3, 2, 1};
  CHECK_THAT(message(), Contains("has 3 entries") && Contains("4 ranks"));
  request.ranks = {3, 2, 1, 2};
  CHECK_THAT(message(), Contains("ranks 1 and 3 are both on GPU 2"));
  request.ranks = {3, 2, 1, 4};
  CHECK_THAT(message(), Contains("GPUs are 0 to 3"));
  request.ranks = {3, 2, 1, 0};
  CHECK(make_placement(traffic, two_sockets(), request).device_of == request.ranks);

  PlacementRequest nics;
  nics.nic = HostBinding::kList;
  nics.nics = {0, 0, 2, 1};
  NodeType node = two_sockets().node;
  CHECK_THAT(message_of([&] { bind_hosts(nics, node); }, ErrorKind::kInput), Contains("there is no 2"));
}

TEST_CASE("graph finds what the order of the ranks says, and exact agrees", "[planner]") {
  // Tensor-parallel partners are 0 and 2, 1 and 3: on one switch each only when rank 1 and 2 change places.
  const RankTraffic traffic =
      rank_traffic(parse_program("axis tp [0,2] [1,3]\naxis dp [0-1] [2-3]\n"
                                 "role all (ranks 0-3):\n"
                                 "  a = all-reduce 16MB in tp\n"
                                 "  g = reduce-scatter 4MB in dp\n"));
  for (const PlacementPolicy of : {PlacementPolicy::kGraph, PlacementPolicy::kExact}) {
    const PlacementCost cost = cost_of(traffic, two_sockets(), policy(of));
    CHECK(cost.crossing.numa == Approx(8 * kMB));  // dp alone: 2 groups · 2 links · 2 MB.
    CHECK(cost.link_seconds == Approx((2 * 64 + 4 * 8) * kMB / 24e9 + 8 * kMB / 16e9));
  }
  CHECK(cost_of(traffic, two_sockets(), policy(PlacementPolicy::kLinear)).crossing.numa == Approx(64 * kMB));
}

TEST_CASE("graph is a permutation, always the same, and never worse than the simple policies", "[planner]") {
  struct Shape {
    std::int32_t tp, pp, dp;
  };
  for (const char* node : {"pcie-a100", "pcie-a100-bridged", "dgx-v100-mesh"}) {
    for (const Shape& shape : {Shape{2, 2, 4}, Shape{4, 4, 1}, Shape{1, 2, 8}}) {
      CAPTURE(node, shape.tp, shape.pp, shape.dp);
      const RankTraffic traffic = traffic_of(shape.tp, shape.pp, shape.dp);
      const Cluster cluster = servers(node, 2);
      const RankPlacement graph = make_placement(traffic, cluster, policy(PlacementPolicy::kGraph));
      CHECK(permutation(graph.device_of));
      CHECK(make_placement(traffic, cluster, policy(PlacementPolicy::kGraph)).device_of == graph.device_of);
      const PlacementMachine machine(cluster);
      const double cost = placement_cost(traffic, machine, graph.device_of).link_seconds;
      for (const PlacementPolicy other : {PlacementPolicy::kLinear, PlacementPolicy::kRoundRobinNodes,
                                          PlacementPolicy::kRoundRobinSockets}) {
        const RankPlacement simple = make_placement(traffic, cluster, policy(other));
        CHECK(permutation(simple.device_of));
        CHECK(cost <= placement_cost(traffic, machine, simple.device_of).link_seconds * (1 + 1e-9));
      }
    }
  }
}

TEST_CASE("METIS alone puts partners together whatever the ranks are called", "[planner]") {
  // Pairs that talk, numbered at random: no policy that goes by rank can find them.
  Random random(7);
  std::vector<std::int64_t> names(32);
  std::iota(names.begin(), names.end(), 0);
  for (std::size_t i = names.size(); i > 1; --i)
    std::swap(names[i - 1],
              names[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
  RankTraffic traffic;
  traffic.world_size = 32;
  traffic.axes = {{"tp", {}}};
  for (std::size_t i = 0; i < names.size(); i += 2) {
    traffic.axes[0].groups.push_back({RankId(names[i]), RankId(names[i + 1])});
    traffic.groups.push_back({AxisId(0), traffic.axes[0].groups.back(), Purpose::kTensorParallel, 16 * kMB});
  }
  const Cluster cluster = servers("pcie-a100-bridged", 4);
  const PlacementMachine machine(cluster);
  const std::vector<std::int32_t> cut = cut_along_boxes(traffic, machine, {}, 0);
  CHECK(permutation(cut));
  const PlacementCost cost = placement_cost(traffic, machine, cut);
  CHECK(cost.crossing.nvlink == Approx(cost.crossing.bytes));
  CHECK(cost_of(traffic, cluster, policy(PlacementPolicy::kLinear)).crossing.nvlink < cost.crossing.bytes);
}

TEST_CASE("hop limits are kept, or refused naming group and pair", "[planner]") {
  const Cluster cluster = servers("pcie-a100", 2);
  const RankTraffic pairs = traffic_of(2, 2, 4);
  PlacementRequest request = policy(PlacementPolicy::kGraph);
  request.max_pcie_hops = 2;
  const RankPlacement placement = make_placement(pairs, cluster, request);
  CHECK(permutation(placement.device_of));
  for (const auto& group : hop_limit(pairs, request).groups) {
    CHECK(PlacementMachine(cluster).within_hops(placement.device_of[group[0].index()],
                                                placement.device_of[group[1].index()], 2));
  }
  const auto refusal = [&](const RankTraffic& traffic) {
    return message_of([&] { make_placement(traffic, cluster, request); }, ErrorKind::kInfeasible);
  };
  request.policy = PlacementPolicy::kRoundRobinSockets;
  CHECK_THAT(refusal(pairs),
             Contains("tp group 0 (ranks 0-1)") && Contains("node 0, GPU 4") && Contains("5 hops apart"));
  request.policy = PlacementPolicy::kRoundRobinNodes;
  CHECK_THAT(refusal(pairs), Contains("on different nodes"));
  // Four GPUs never share a switch; two switches of a socket are four links apart.
  request.policy = PlacementPolicy::kGraph;
  const RankTraffic fours = traffic_of(4, 2, 2);
  CHECK_THAT(refusal(fours),
             Contains("tp group 0 (ranks 0-3)") && Contains("GPUs 0 and 2") && Contains("allow 4"));
  request.max_pcie_hops = 4;
  CHECK(hop_fault(hop_limit(fours, request), PlacementMachine(cluster),
                  make_placement(fours, cluster, request).device_of) == "");
  request.hop_group = "cp";
  CHECK_THAT(refusal(fours), Contains("no groups \"cp\"; it has"));
  // NVLink counts no hops.
  request.hop_group = "tp";
  request.max_pcie_hops = 0;
  const Cluster bridged = servers("pcie-a100-bridged", 2);
  CHECK(hop_fault(hop_limit(pairs, request), PlacementMachine(bridged),
                  make_placement(pairs, bridged, request).device_of) == "");
}

TEST_CASE("the machine divides into pods, nodes, sockets and switches", "[planner]") {
  Cluster cluster = servers("pcie-a100", 4);
  cluster.fabric.nodes_per_leaf = 2;
  const DeviceBox all = PlacementMachine(cluster).boxes();
  REQUIRE(all.boxes.size() == 2);                             // Pods of two nodes.
  REQUIRE(all.boxes[1].boxes.size() == 2);                    // Nodes.
  REQUIRE(all.boxes[1].boxes[1].boxes.size() == 2);           // Sockets of four GPUs.
  REQUIRE(all.boxes[1].boxes[1].boxes[0].boxes.size() == 2);  // Switches of two.
  CHECK(all.boxes[1].boxes[1].boxes[0].boxes[1].devices == std::vector<std::int32_t>{26, 27});
  // Behind an NVSwitch nothing tells GPUs apart.
  CHECK(PlacementMachine(servers("dgx-h100", 1)).boxes().boxes.empty());
}

TEST_CASE("groups over several nodes divide into two levels", "[planner]") {
  Cluster cluster = servers("dgx-h100", 2);
  const PlacementMachine machine(cluster);
  std::vector<std::int32_t> order(16);
  std::iota(order.begin(), order.end(), 0);
  const std::vector<RankId> four = {RankId(0), RankId(1), RankId(8), RankId(9)};
  const auto levels = group_levels({"dp", {four}}, machine, order);
  REQUIRE(levels);
  CHECK(levels->inside == std::vector<std::vector<RankId>>{{RankId(0), RankId(1)}, {RankId(8), RankId(9)}});
  CHECK(levels->across == std::vector<std::vector<RankId>>{{RankId(0), RankId(8)}, {RankId(1), RankId(9)}});
  CHECK_FALSE(group_levels({"dp", {{RankId(0), RankId(1)}}}, machine, order));             // One node.
  CHECK_FALSE(group_levels({"dp", {{RankId(0), RankId(8)}}}, machine, order));             // One on each.
  CHECK_FALSE(group_levels({"dp", {{RankId(0), RankId(1), RankId(8)}}}, machine, order));  // Unequal.
  RankTraffic traffic;
  traffic.world_size = 16;
  traffic.axes = {{"dp", {four}}};
  traffic.groups = {{AxisId(0), four, Purpose::kGradientReduce, kMB}};
  const auto times = level_times(traffic, machine, default_profile(cluster.node.gpu), order);
  REQUIRE(times.size() == 2);
  CHECK(times[1].per_node == 2);
  CHECK(times[1].nodes == 2);
  // Between the nodes each GPU sends 2 · 1/2 of its half: not less than over its NIC's 50 GB/s.
  CHECK(times[1].by_level.seconds() > 128.0 * 1024 * 1024 / 50e9);
  CHECK(times[1].flat.seconds() > times[0].flat.seconds());
}

TEST_CASE("a placement changes devices alone, and on a symmetric machine not the time", "[planner]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  const Plan plan = expand(shorthand(2, 2, 2, 4), graph, 8);
  const Program program = lower(graph, plan);
  PlacementRequest request = policy(PlacementPolicy::kList);
  request.ranks = {5, 0, 7, 2, 4, 1, 6, 3};
  const Cluster cluster = servers("dgx-h100", 1);
  const Plan placed = place_ranks(plan, graph, cluster, request);
  CHECK(check(placed, graph).empty());
  Program moved = lower(graph, placed);
  CHECK(moved.device_of == request.ranks);
  const Profile profile = default_profile(cluster.node.gpu);
  CHECK(simulate(moved, cluster, profile, {}).step_time == simulate(program, cluster, profile, {}).step_time);
  moved.device_of = program.device_of;
  CHECK(moved == program);

  Plan wrong = plan;
  wrong.device_of = {0, 1, 2, 3, 4, 5, 6, 6};
  CHECK(check(wrong, graph).size() == 1);
}

}  // namespace orrery

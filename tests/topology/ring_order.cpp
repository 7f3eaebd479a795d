// Rings over the GPUs of one node: edges by hand, best orders against all orders.
#include "topology/ring_order.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "base/random.hpp"
#include "topology/node_layout.hpp"

using namespace orrery;
using nccl::PathClass;

namespace {

// Four GPUs in two pairs, each pair under a PCIe switch of its own CPU; no NVLink.
NodeType two_sockets() {
  NodeLayout layout;
  layout.name = "two-sockets";
  layout.gpus = 4;
  layout.nics = 0;
  layout.pcie_switches = 2;
  layout.cpus = 2;
  layout.pcie_bytes_per_s = 24e9;
  layout.cpu_interconnect_bytes_per_s = 10e9;
  return build_node(layout, {});
}

RingOrder all_gpus(const NodeType& node) {
  RingOrder order(static_cast<std::size_t>(node.gpus));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

RingCost cost(const NodeType& node, const RingOrder& order) {
  return ring_cost(node, find_routes(node), {&order, 1});
}

// The fastest of all (n − 1)! orders.
double best_by_trying_all(const NodeType& node) {
  const NodeRoutes routes = find_routes(node);
  RingOrder order = all_gpus(node);
  double best = 0;
  do {
    best = std::max(best, ring_cost(node, routes, {&order, 1}).bytes_per_s);
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

std::int32_t number(Random& random, std::int64_t low, std::int64_t high) {
  return static_cast<std::int32_t>(random.between(low, high));
}

// GPUs under random switches, some pairs with one to three NVLink cables.
NodeType random_node(Random& random, std::int32_t gpus) {
  NodeLayout layout;
  layout.name = "random";
  layout.gpus = gpus;
  layout.nics = 0;
  layout.pcie_switches = number(random, 1, 4);
  layout.cpus = number(random, 1, 2);
  layout.pcie_bytes_per_s = 12e9;
  layout.cpu_interconnect_bytes_per_s = 10e9;
  layout.direct_nvlink_bytes_per_s = 20e9;
  for (std::int32_t a = 0; a < gpus; ++a)
    for (std::int32_t b = a + 1; b < gpus; ++b)
      if (number(random, 0, 1) == 0) layout.direct_nvlinks.push_back({a, b, number(random, 1, 3)});
  return build_node(layout, {});
}

}  // namespace

// 0 → 1 stays under a switch; 1 → 2 goes up, across and down: five links, 10 GB/s. Both sockets are crossed
// once in each direction, so nobody shares.
TEST_CASE("a ring in order crosses between sockets twice", "[topology][ring]") {
  const RingCost ring = cost(two_sockets(), {0, 1, 2, 3});
  const std::vector<RingEdge>& edges = ring.rings.front();
  CHECK(edges[0].path == PathClass::kPix);
  CHECK(edges[0].links == 2);
  CHECK(edges[1].path == PathClass::kSys);
  CHECK(edges[1].links == 5);
  CHECK(edges[1].sharing == 1);
  CHECK(ring.mean_links == Approx((2 + 5 + 2 + 5) / 4.0));
  CHECK(ring.bytes_per_s == Approx(10e9));
}

// 0 → 2 → 1 → 3 → 0: all four edges cross, two in each direction: half the rate.
TEST_CASE("a zigzag ring shares the link between sockets", "[topology][ring]") {
  const RingCost ring = cost(two_sockets(), {0, 2, 1, 3});
  for (const RingEdge& edge : ring.rings.front()) {
    CHECK(edge.path == PathClass::kSys);
    CHECK(edge.sharing == 2);
    CHECK(edge.alone_bytes_per_s == Approx(10e9));
  }
  CHECK(ring.bytes_per_s == Approx(5e9));
  // 2·3 steps of 1 GB/4 at 5 GB/s and of five links at 0.25 us.
  CHECK(ring.all_reduce_seconds(1'000'000'000) == Approx(6 * (0.05 + 1.25e-6)));
}

TEST_CASE("two rings in opposite directions use both directions of each link", "[topology][ring]") {
  const NodeType node = two_sockets();
  const std::vector<RingOrder> rings{{0, 1, 2, 3}, {3, 2, 1, 0}};
  const RingCost both = ring_cost(node, find_routes(node), rings);
  CHECK(both.rings.size() == 2);
  // 1 → 2 and 0 → 3 cross in the same direction, one of each ring.
  CHECK(both.rings[0][1].sharing == 2);
  CHECK(both.bytes_per_s == Approx(2 * 5e9));
}

TEST_CASE("the cube mesh has a ring over double links", "[topology][ring]") {
  const NodeType node = catalogue_node("dgx-v100-mesh").value();
  const NodeRoutes routes = find_routes(node);
  const BestRing best = best_ring(node, routes, all_gpus(node));
  const RingCost ring = ring_cost(node, routes, {&best.order, 1});
  for (const RingEdge& edge : ring.rings.front()) {
    CHECK(edge.path == PathClass::kNvl);
    CHECK(edge.links == 1);
    CHECK(edge.bytes_per_s == Approx(2 * 20e9));
  }
  CHECK(best.proved);
  CHECK(best.order.front() == 0);
  // In index order the step from 3 to 4 has no NVLink.
  CHECK(cost(node, all_gpus(node)).rings.front()[3].path > PathClass::kNvl);
}

TEST_CASE("no order of up to seven GPUs is faster than the best", "[topology][ring]") {
  Random random(7);
  for (std::int32_t gpus = 2; gpus <= 7; ++gpus)
    for (int i = 0; i < 6; ++i) {
      const NodeType node = random_node(random, gpus);
      const BestRing best = best_ring(node, find_routes(node), all_gpus(node));
      INFO("GPUs " << gpus << ", case " << i);
      CHECK(std::is_permutation(best.order.begin(), best.order.end(), all_gpus(node).begin()));
      CHECK(best.bytes_per_s == Approx(best_by_trying_all(node)));
    }
}

TEST_CASE("more than sixteen GPUs are ordered too", "[topology][ring]") {
  NodeLayout layout;
  layout.name = "eighteen";
  layout.gpus = 18;
  layout.nics = 0;
  layout.pcie_switches = 6;
  layout.cpus = 2;
  layout.pcie_bytes_per_s = 12e9;
  layout.cpu_interconnect_bytes_per_s = 10e9;
  const NodeType node = build_node(layout, {});
  const BestRing best = best_ring(node, find_routes(node), all_gpus(node));
  CHECK(best.bytes_per_s == Approx(10e9));  // One crossing in each direction.
}

#pragma once
// What it costs to pass data around the GPUs of a node in a given order, and the order that costs least.
// A ring's edges all move data at once and at one pace, so a link shared by k of them gives each 1/k.

#include <cstdint>
#include <span>
#include <vector>

#include "topology/cluster.hpp"
#include "topology/nccl/nccl_graph.hpp"
#include "topology/node_routes.hpp"

namespace orrery {

// GPUs of a node, each once; the last passes on to the first.
using RingOrder = std::vector<std::int32_t>;

// The worst of what lies on the way, in NCCL's classes: only NVLink; one PCIe switch; several; a CPU; two
// CPUs.
nccl::PathClass path_class(const NodeType& node, const NodePath& path);

struct RingEdge {
  std::int32_t from = 0, to = 0;
  nccl::PathClass path = nccl::PathClass::kNvl;
  std::int32_t links = 0;  // Passed on the way ("hops").
  double latency_s = 0;
  double alone_bytes_per_s = 0;  // Of the narrowest link.
  double bytes_per_s = 0;        // While all other edges of all rings move data too.
  std::int32_t narrowest = -1;   // The Arc that limits it then.
  std::int32_t sharing = 1;      // Edges that cross that arc.
};

struct RingCost {
  std::vector<std::vector<RingEdge>> rings;  // As given.
  double bytes_per_s = 0;                    // Of all rings together, each with an equal share of the data.
  double mean_links = 0;                     // Per edge.
  double step_latency_s = 0;                 // Of the slowest edge.

  // 2(n−1) steps, each of bytes/n (Thakur, Rabenseifner, Gropp 2005). REQUIRES: rings over `ranks` > 1 GPUs.
  double all_reduce_seconds(std::int64_t bytes) const;
};

// REQUIRES: every ring has the same GPUs of `node`, at least two, each once.
RingCost ring_cost(const NodeType& node, const NodeRoutes& routes, std::span<const RingOrder> rings);

struct BestRing {
  RingOrder order;
  double bytes_per_s = 0;
  // No ring over these GPUs can be faster: none avoids edges that are this slow even alone.
  bool proved = false;
};

// The order whose slowest edge is fastest, and of those the one that occupies links for the shortest time in
// all; by an exact search (Held and Karp 1962) up to 16 GPUs, beyond by improving a greedy ring. Then, as
// long as that helps, stretches are reversed and moved for what links are shared. Starts at the lowest GPU.
// REQUIRES: at least two GPUs of `node`.
BestRing best_ring(const NodeType& node, const NodeRoutes& routes, std::span<const std::int32_t> gpus);

}  // namespace orrery

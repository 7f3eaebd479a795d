#pragma once
// NCCL's search for channels: which orders of a node's GPUs, through which ports, at what speed. It is a
// depth-first search with bounded steps over settings that are relaxed one by one; followed to the letter,
// because its order and its limits decide what NCCL ends with (2.30.7, src/graph/search.cc). Deterministic.

#include <cstdint>
#include <vector>

#include "topology/nccl/nccl_graph.hpp"
#include "topology/nccl/nccl_system.hpp"

namespace orrery::nccl {

struct SearchOptions {
  bool nvls = true;  // The GPUs and the switch can multicast; only looked for from compute capability 9.0.
  bool collnet = false;
};

struct Graphs {
  Graph ring, tree, collnet_chain, collnet_direct, nvls;  // Without channels: not found or not looked for.
};

// NCCL version, NCCL_CROSS_NIC and NCCL_NETDEVS_POLICY are those of `system`.
Graphs search_graphs(const System& system, const SearchOptions& options = {});

// The speeds in GB/s that are tried for this capability, fastest first.
std::vector<float> search_speeds(std::int32_t least_capability, bool several_nodes, std::int32_t nccl_minor);

}  // namespace orrery::nccl

#pragma once
// The ways inside one node type: GPU to GPU, GPU to its NIC, GPU to its CPU.

#include <cstdint>
#include <vector>

#include "topology/cluster.hpp"

namespace orrery {

// An arc is one direction of a NodeLink: 2 · link (a → b) or 2 · link + 1 (b → a).
using Arc = std::int32_t;

struct NodePath {
  std::vector<Arc> arcs;
  double latency_s = 0;
};

struct NodeRoutes {
  std::vector<NodePath> between;             // From GPU · GPUs + to GPU.
  std::vector<std::int32_t> nic_of;          // By GPU, 0 … NICs − 1; −1: no NIC within reach.
  std::vector<NodePath> to_nic, from_nic;    // By GPU; without arcs when there is no NIC.
  std::vector<NodePath> to_host, from_host;  // By GPU; without arcs when there is no CPU.
  bool has_host = false;
};

// NICs and CPUs are those that NodeType binds GPUs to, else the nearest. Where a binding says whose memory a
// GPU's process uses and the way to its NIC leads through a CPU, that memory lies on the way: without a
// common PCIe switch NCCL doesn't let NICs read GPUs but copies through the host (NCCL_NET_GDR_LEVEL's
// default, PXB). THROWS Error(kInput) when a GPU can't reach another one, or what it is bound to.
NodeRoutes find_routes(const NodeType& node);

}  // namespace orrery

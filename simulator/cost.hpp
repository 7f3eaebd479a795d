#pragma once
// First-order costs. Compute is a roofline with sustained efficiencies; collectives are α–β models of
// ring and tree over the links that the group really has. Part 2's models replace the formulas, not the
// signatures.

#include <cstdint>
#include <span>

#include "base/sim_time.hpp"
#include "model/program.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// Work of one launch at full speed: max(arithmetic / reachable peak, bytes / reachable bandwidth, floor).
// Everything but matmuls and attention counts as memory-bound.
// THROWS Error(kInfeasible) when the GPU has no arithmetic of the kernel's type.
SimTime kernel_time(const Kernel& kernel, const GpuType& gpu, const Profile& profile);

// What a collective needs of the network, before links are looked up.
struct TransferCost {
  double latency_s = 0;
  std::int64_t bytes = 0;  // Through each ring link of one channel; each channel carries an equal share.
};

// How a group lies on the machine.
struct GroupShape {
  std::int32_t ranks = 1;
  std::int32_t nodes = 1;
  std::int32_t channels = 1;  // Rings side by side: on several nodes one per NIC of each node.
};

// Ring and tree, whichever ends sooner when a channel moves `rate` bytes per second. Of s steps those between
// nodes (in a ring over N nodes the share N−1 of n−1, in a tree ceil(log2 N) of ceil(log2 n)) take the
// network's step latency, the others the node's; a call has its base latency.
//   ring all-reduce:   2(n−1) steps, 2(n−1)/n · bytes      (Thakur, Rabenseifner, Gropp 2005)
//   ring all-gather, reduce-scatter: n−1 steps, (n−1)/n · bytes
//   tree all-reduce:   2·ceil(log2 n) steps, 2 · bytes pipelined in chunks
//   all-to-all:        n−1 steps, (n−1)/n · bytes
//   broadcast:         n−1 steps, bytes
// A group of one has nothing to do.
TransferCost collective_cost(CollectiveKind kind, std::int64_t bytes, const GroupShape& shape, double rate,
                             const Profile& profile);

}  // namespace orrery

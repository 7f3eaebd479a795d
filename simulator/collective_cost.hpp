#pragma once
// What collectives cost. On an ideal machine a ring or a tree over the links that the group really has; else
// the algorithm and protocol that NCCL would choose (simulator/collective_tuning.hpp), at the price that
// NCCL's own model gives it, corrected by what was measured (Profile::collectives).

#include <cstdint>
#include <span>

#include "model/program.hpp"
#include "simulator/collective_tuning.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// What a collective needs of the network, before links are looked up.
struct TransferCost {
  double latency_s = 0;
  std::int64_t bytes = 0;  // Through each ring link of one channel; each channel carries an equal share.
  double bytes_per_s = 0;  // Of one channel, on links that nobody else uses. 0: nothing to move.
  // The time was measured and holds whatever links are said to carry; `bytes_per_s` may then exceed them.
  bool measured = false;

  double seconds() const { return latency_s + (bytes > 0 ? static_cast<double>(bytes) / bytes_per_s : 0); }
};

// How a group lies on the machine.
struct GroupShape {
  std::int32_t ranks = 1;
  std::int32_t nodes = 1;
  std::int32_t channels = 1;      // Rings side by side: on several nodes one per NIC of each node.
  double nvlink_bytes_per_s = 0;  // Of one member to all others of its node; 0: not all are joined by NVLink.

  auto operator<=>(const GroupShape&) const = default;
};

// What all groups on one kind of node have in common.
struct CollectiveMachine {
  nccl::Generation generation = nccl::Generation::kHopper;
  bool nvswitch = false;
  std::int32_t nics = 0;
  double nic_bytes_per_s = 0;  // Through its PCIe link.

  // The switch copies and adds up what passes it: NVLS needs that (NVLink 4, with Hopper).
  bool has_multicast() const { return nvswitch && generation >= nccl::Generation::kHopper; }
};
CollectiveMachine collective_machine(const NodeType& node);

// NVLink rate of one member to the others, for some GPUs of one node; 0 when NVLink doesn't join them all.
double nvlink_rate(const NodeType& node, std::span<const std::int32_t> gpus);

// What NCCL's search finds for a group whose channels reach `rate` over their links, alone.
nccl::Communicator nccl_communicator(const GroupShape& shape, const CollectiveMachine& machine, double rate,
                                     const Profile& profile);
// By how much moving a payload takes longer than NCCL's price of it has been measured to: what the first and
// the last step copy besides (rings), and channels with less than their full share.
double move_factor(CollectiveKind kind, double payload, nccl::Algorithm algorithm, nccl::Protocol protocol,
                   const nccl::Communicator& comm, const CollectiveCosts& costs);

// Of the payload, what passes each link of a ring over n ranks, all channels together.
double ring_share(CollectiveKind kind, double n);

// `rate`: what a channel can move over its links, alone. A group of one has nothing to do.
//
// Ideal: the sooner of ring and tree. Of s steps those between nodes (in a ring over N nodes the share N−1 of
// n−1, in a tree ceil(log2 N) of ceil(log2 n)) take the network's step latency, the others the node's; a call
// has its base latency.
//   ring all-reduce:   2(n−1) steps, 2(n−1)/n · bytes      (Thakur, Rabenseifner, Gropp 2005)
//   ring all-gather, reduce-scatter: n−1 steps, (n−1)/n · bytes
//   tree all-reduce:   2·ceil(log2 n) steps, 2 · bytes pipelined in chunks
//   all-to-all:        n−1 steps, (n−1)/n · bytes
//   broadcast:         n−1 steps, bytes
// As NCCL: time = call + latency + slowdown · bytes / bandwidth · (1 + ends / steps) · (1 + ramp · halvings
// below a channel's full share), the last two for what moves whole chunks (not LL). The bytes of a link are
// those that the algorithm really sends over it, so NVLS, which sends an all-reduce once instead of nearly
// twice, loads it less; the rate is what makes them take that time, or the links' rate when that is less.
// All-to-alls are direct messages, which NCCL has no price for: the base cost of a call, a latency per batch
// of eight peers, and the links' rate over the measured slowdown.
// Where the Profile has fits of the kind and the group is on one node: base + bytes · seconds_per_byte,
// between the group sizes that were measured linear in their number, beyond them as the nearest.
TransferCost collective_cost(CollectiveKind kind, std::int64_t bytes, const GroupShape& shape,
                             const CollectiveMachine& machine, double rate, const Profile& profile);

// The error of a cost for a group on one node or several: its fixed part and its moving part are wrong
// independently, each by its share of the time.
CostError collective_error(const TransferCost& cost, bool one_node, const Profile& profile);

}  // namespace orrery

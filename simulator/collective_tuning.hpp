#pragma once
// How NCCL prices its algorithms and picks one: the tuning model of NCCL 2.30 (src/graph/tuning.cc),
// restated. Its own units: microseconds and GB/s. CollNet, PAT and forced choices are left out.

#include <cstdint>
#include <vector>

#include "model/program.hpp"

namespace orrery::nccl {

// By compute capability: below 80, 80 to 89, 90 to 99, 100 and above.
enum class Generation : std::uint8_t { kVolta, kAmpere, kHopper, kBlackwell };
enum class Algorithm : std::uint8_t { kTree, kRing, kNvls, kNvlsTree };  // NCCL's order: decides ties.
enum class Protocol : std::uint8_t { kLl, kLl128, kSimple };

// What the search for paths found for one family of algorithms.
struct ChannelGraph {
  std::int32_t channels = 0;  // 0: nothing found.
  double node_gb_per_s = 0;   // Per channel, inside a node.
  double network_gb_per_s = 0;
};

struct Communicator {
  std::int32_t ranks = 1, nodes = 1;
  Generation generation = Generation::kHopper;
  bool nvlink = true;      // Between all ranks of a node.
  bool plain_tree = true;  // All network traffic of a tree at one GPU of a node; else shared by two.
  bool amd_host = false;
  ChannelGraph ring, tree, nvls;

  double ranks_per_node() const { return static_cast<double>(ranks) / nodes; }
};

struct Price {
  double latency_us = 0;
  double gb_per_s = 0;  // Of the payload ("algorithm bandwidth"). 0: not available.

  double microseconds(std::int64_t bytes) const {
    return latency_us + static_cast<double>(bytes) / (1e3 * gb_per_s);
  }
};

// For a payload of any size. REQUIRES: `kind` isn't an all-to-all, which NCCL doesn't price.
Price price(CollectiveKind kind, Algorithm algorithm, Protocol protocol, const Communicator& comm);

// What a lone call takes before its first step, and what a step takes inside a node and between nodes: what
// price()'s latency is made of. All-to-alls, which NCCL doesn't price, take the ring's.
struct StepLatency {
  double base_us = 0, node_us = 0, network_us = 0;
};
StepLatency step_latency(Algorithm algorithm, Protocol protocol, const Communicator& comm);

struct Choice {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  Price price;  // With the corrections for this size.
};

// The cheapest for one call of `bytes` (of the whole group for all-gather and reduce-scatter).
Choice choose(CollectiveKind kind, std::int64_t bytes, const Communicator& comm);

// What one GPU of a group can reach, as the search for graphs sees it.
struct GroupLinks {
  std::int32_t ranks = 1, nodes = 1;
  Generation generation = Generation::kHopper;
  bool nvlink = false;
  bool multicast = false;    // An NVSwitch that reduces and multicasts, and allowed to.
  double node_gb_per_s = 0;  // Per GPU, to all others of its node together.
  std::int32_t nics = 0;     // Per node, of those that the group's GPUs use.
  double nic_gb_per_s = 0;
};

// The graphs that NCCL's search ends with on machines where all GPUs of a node look alike: the fastest
// channels that fill the links, from its list of speeds, doubled and raised by its rules. A full search over
// uneven machines is not done.
Communicator find_channels(const GroupLinks& links);

}  // namespace orrery::nccl

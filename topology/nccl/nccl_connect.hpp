#pragma once
// From what every node's search found to the channels of a communicator: rings and trees over all ranks,
// heads of NVLS, how many channels collectives and messages use. NCCL 2.30.7, src/graph/connect.cc, trees.cc
// and paths.cc; what differed before is keyed by the version.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topology/nccl/nccl_search.hpp"

namespace orrery::nccl {

// One node (hosts that share NVLink are one): its graphs, and which rank each of its devices is.
struct NodeGraphs {
  Graphs graphs;
  std::vector<std::pair<std::int64_t, std::int32_t>> ranks;  // Device number as in Graph, rank.
};

struct ConnectOptions {
  std::int32_t nccl_minor = 30;
  std::int32_t least_capability = 90;  // In the whole communicator.
  double nic_gb_per_s = 0;             // The slowest port of any rank.
  PathClass network_path = PathClass::kPix;
  bool collnet = false;
  bool unpack_network = false;                // A network that unpacks on the GPU (TCPX).
  std::optional<std::int32_t> most_channels;  // A parent's that resources are shared with.
  Variables variables;
};

// One rank's place in one tree. −1: none.
struct TreeLinks {
  std::int32_t up = -1;
  std::array<std::int32_t, 3> down{-1, -1, -1};
  bool operator==(const TreeLinks&) const = default;
};

struct Channels {
  std::int32_t searched = 0;    // Of the search, before they are doubled.
  std::int32_t collective = 0;  // "coll channels"
  std::int32_t nvls = 0;
  std::vector<std::vector<std::int32_t>> rings;  // By channel: ranks in the order data travels, from rank 0.
  std::vector<std::vector<TreeLinks>> trees;     // By channel, then rank.
  std::vector<std::vector<std::int32_t>> nvls_heads;  // By head: a rank of every node.
  std::vector<std::int32_t> node_of_rank;             // Nodes count by their lowest rank.
};

// THROWS Error(kInput) when ranks aren't 0 … n−1, or a node's graphs name devices that have no rank.
Channels connect_nodes(const std::vector<NodeGraphs>& nodes, const ConnectOptions& options = {});

// A node's parent and children in the two binary trees over `nodes` nodes. −1: none.
struct TreeNode {
  std::int32_t up = -1;
  std::array<std::int32_t, 2> down{-1, -1};
  std::int32_t child = 0;  // Which child of its parent it is.
  bool operator==(const TreeNode&) const = default;
};
std::array<TreeNode, 2> double_tree(std::int32_t nodes, std::int32_t node);

// "Channel 00/16 : 0 7 6 …" of all channels, and "Trees [0] 1/-1/-1->0->-1 …" of one rank.
std::string rings_text(const Channels& channels);
std::string trees_text(const Channels& channels, std::int32_t rank);

// Channels for sends and receives, of a communicator and between two ranks of it.
struct P2pChannels {
  std::int32_t all = 1, per_peer = 1;
};
P2pChannels p2p_channels(const System& system, std::int32_t collective_channels, std::int32_t ranks,
                         bool several_nodes);

}  // namespace orrery::nccl

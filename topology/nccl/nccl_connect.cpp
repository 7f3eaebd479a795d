#include "topology/nccl/nccl_connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.hpp"
#include "topology/link_rates.hpp"
#include "topology/nccl/nccl_paths.hpp"

namespace orrery::nccl {
namespace {

// A channel's chain of ranks in one node.
using Chain = std::vector<std::int32_t>;

struct ConnectedNode {
  std::vector<Chain> rings, trees;  // By channel.
  Chain heads;
  std::vector<std::int32_t> ranks;
};

// What all ranks agree on: the worst of any node.
struct Agreed {
  std::int32_t channels = std::numeric_limits<std::int32_t>::max();
  std::int32_t cross_nic = 0;
  double ring_gb_per_s = std::numeric_limits<double>::infinity();
  double chain_node_gb_per_s = std::numeric_limits<double>::infinity(), chain_network_gb_per_s = 0;
  std::size_t heads = std::numeric_limits<std::size_t>::max();
};

std::int32_t lowest(const NodeGraphs& node) {
  std::int32_t rank = std::numeric_limits<std::int32_t>::max();
  for (const auto& [device, r] : node.ranks) rank = std::min(rank, r);
  return rank;
}

std::int32_t rank_of(const NodeGraphs& node, std::int64_t device) {
  for (const auto& [known, rank] : node.ranks)
    if (known == device) return rank;
  fail(
      ErrorKind::kInput,
      "the graphs name GPU {} of host {}, which is no rank of the communicator: give graphs of the GPUs that "
      "take part",
      device & ((std::int64_t{1} << 56) - 1), device >> 56);
}

std::vector<Chain> chains(const NodeGraphs& node, const Graph& graph) {
  std::vector<Chain> result;
  for (const GraphChannel& channel : graph.channels) {
    Chain& chain = result.emplace_back();
    for (const std::int64_t gpu : channel.gpus) chain.push_back(rank_of(node, gpu));
    if (chain.size() != node.ranks.size())
      fail(ErrorKind::kInput,
           "a channel has {} GPUs and the node {} ranks: give graphs of the GPUs that take part",
           chain.size(), node.ranks.size());
  }
  return result;
}

Agreed agree(const std::vector<const NodeGraphs*>& nodes) {
  Agreed all;
  for (const NodeGraphs* node : nodes) {
    const Graphs& graphs = node->graphs;
    all.channels = std::min({all.channels, static_cast<std::int32_t>(graphs.ring.channels.size()),
                             static_cast<std::int32_t>(graphs.tree.channels.size())});
    all.cross_nic = std::max(all.cross_nic, graphs.ring.cross_nic);
    all.ring_gb_per_s = std::min(all.ring_gb_per_s, graphs.ring.node_gb_per_s);
    all.chain_node_gb_per_s = std::min(all.chain_node_gb_per_s, graphs.collnet_chain.node_gb_per_s);
    all.chain_network_gb_per_s = std::max(all.chain_network_gb_per_s, graphs.collnet_chain.network_gb_per_s);
    all.heads = std::min(all.heads, graphs.nvls.channels.size());
  }
  return all;
}

// Where a tree's edges between nodes meet a node's chain.
std::int32_t child_gpu(Pattern pattern, std::int32_t child, std::size_t gpus) {
  std::int32_t index = 0;
  if (child == 0) index = pattern == Pattern::kTree ? 0 : 1;
  if (child == 1) index = pattern == Pattern::kSplitTree ? 1 : 0;
  return std::min(index, static_cast<std::int32_t>(gpus) - 1);
}

void add_child(TreeLinks& links, std::int32_t rank) { *std::ranges::find(links.down, -1) = rank; }

class Connector {
 public:
  Connector(const std::vector<NodeGraphs>& nodes, const ConnectOptions& options) : options_(options) {
    for (const NodeGraphs& node : nodes) order_.push_back(&node);
    std::ranges::sort(order_, {}, [](const NodeGraphs* node) { return lowest(*node); });
  }

  Channels connect() {
    number_ranks();
    agreed_ = agree(order_);
    for (const NodeGraphs* node : order_) {
      ConnectedNode& made = nodes_.emplace_back();
      made.rings = chains(*node, node->graphs.ring);
      made.trees = chains(*node, node->graphs.tree);
      for (const GraphChannel& channel : node->graphs.nvls.channels)
        if (!channel.gpus.empty()) made.heads.push_back(rank_of(*node, channel.gpus.front()));
    }
    result_.searched = agreed_.channels;
    swap_rails();
    for (std::int32_t c = 0; c < agreed_.channels; ++c) connect_channel(static_cast<std::size_t>(c));
    for (std::size_t h = 0; h < agreed_.heads; ++h) {
      auto& head = result_.nvls_heads.emplace_back();
      for (const ConnectedNode& node : nodes_) head.push_back(node.heads[h]);
    }
    count_channels();
    return std::move(result_);
  }

 private:
  void number_ranks() {
    std::size_t ranks = 0;
    for (const NodeGraphs* node : order_) ranks += node->ranks.size();
    result_.node_of_rank.assign(ranks, -1);
    for (std::size_t n = 0; n < order_.size(); ++n)
      for (const auto& [device, rank] : order_[n]->ranks) {
        if (rank < 0 || static_cast<std::size_t>(rank) >= ranks ||
            result_.node_of_rank[static_cast<std::size_t>(rank)] >= 0)
          fail(ErrorKind::kInput, "ranks of a communicator of {} must be 0 to {}, each once: rank {} isn't",
               ranks, ranks - 1, rank);
        result_.node_of_rank[static_cast<std::size_t>(rank)] = static_cast<std::int32_t>(n);
      }
    if (ranks == 0) fail(ErrorKind::kInput, "a communicator needs at least one rank");
  }

  // Each ring uses two ports of a node; on every other node pairs change places, so that a ring stays on the
  // rails that it left by.
  void swap_rails() {
    if (agreed_.cross_nic != 2 || agreed_.channels % 2 != 0) return;
    for (std::size_t n = 1; n < nodes_.size(); n += 2)
      for (std::size_t c = 0; c + 1 < static_cast<std::size_t>(agreed_.channels); c += 2)
        std::swap(nodes_[n].rings[c], nodes_[n].rings[c + 1]);
  }

  void connect_channel(std::size_t c) {
    Chain ring;
    for (const ConnectedNode& node : nodes_)
      ring.insert(ring.end(), node.rings[c].begin(), node.rings[c].end());
    std::ranges::rotate(ring, std::ranges::find(ring, 0));
    result_.rings.push_back(std::move(ring));

    std::vector<TreeLinks> links(result_.node_of_rank.size());
    for (const ConnectedNode& node : nodes_) {
      const Chain& chain = node.trees[c];
      for (std::size_t i = 0; i < chain.size(); ++i) {
        TreeLinks& own = links[static_cast<std::size_t>(chain[i])];
        if (i > 0) own.up = chain[i - 1];
        if (i + 1 < chain.size()) own.down[0] = chain[i + 1];
      }
    }
    std::array trees{links, links};
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const auto places = double_tree(static_cast<std::int32_t>(nodes_.size()), static_cast<std::int32_t>(n));
      for (std::size_t t = 0; t < 2; ++t) connect_node(c, n, places[t], trees[t]);
    }
    result_.trees.push_back(std::move(trees[0]));
    second_.push_back(std::move(trees[1]));
  }

  void connect_node(std::size_t c, std::size_t n, const TreeNode& place, std::vector<TreeLinks>& tree) const {
    const auto meets = [&](std::size_t node, std::int32_t child) {
      const Chain& chain = nodes_[node].trees[c];
      return chain[static_cast<std::size_t>(
          child_gpu(order_[node]->graphs.tree.pattern, child, chain.size()))];
    };
    const auto links = [&](std::int32_t rank) -> TreeLinks& { return tree[static_cast<std::size_t>(rank)]; };
    if (place.up >= 0)
      links(nodes_[n].trees[c].front()).up = meets(static_cast<std::size_t>(place.up), place.child);
    for (std::int32_t child = 0; child < 2; ++child) {
      const std::int32_t node = place.down[static_cast<std::size_t>(child)];
      if (node >= 0)
        add_child(links(meets(n, child)), nodes_[static_cast<std::size_t>(node)].trees[c].front());
    }
  }

  void repeat_to(std::size_t channels) {
    const std::size_t before = result_.rings.size();
    for (std::size_t c = before; c < channels; ++c) {
      result_.rings.push_back(result_.rings[c - before]);
      result_.trees.push_back(result_.trees[c - before]);
    }
  }

  void count_channels() {
    const std::size_t hard = options_.nccl_minor >= 25 ? 64 : 32;
    const bool several = nodes_.size() > 1;
    const auto searched = static_cast<std::size_t>(agreed_.channels);
    for (std::size_t c = 0; c < searched && result_.rings.size() < hard; ++c) {
      result_.rings.push_back(result_.rings[c]);
      result_.trees.push_back(second_[c]);
    }
    const auto now = [&] { return result_.rings.size(); };
    const std::size_t ranks = result_.node_of_rank.size();
    if (options_.collnet && agreed_.chain_node_gb_per_s > agreed_.chain_network_gb_per_s &&
        ranks > nodes_.size())
      repeat_to(std::min(hard, now() + now() / 2));
    // Four of them per channel of the search, where a node has less than eight ports.
    if (options_.least_capability >= 90 && several && agreed_.ring_gb_per_s > 45 && now() < 16)
      repeat_to(2 * now());
    if (options_.unpack_network && several && now() < 16 && options_.variables.unpack_doubles_channels)
      repeat_to(2 * now());
    const std::size_t most =
        std::min({hard, static_cast<std::size_t>(options_.variables.max_channels.value_or(64)),
                  static_cast<std::size_t>(options_.most_channels.value_or(64))});
    if (now() > most) {
      result_.rings.resize(most);
      result_.trees.resize(most);
    }
    const std::size_t least =
        std::min(static_cast<std::size_t>(options_.variables.min_channels.value_or(0)),
                 std::min(hard, static_cast<std::size_t>(options_.most_channels.value_or(64))));
    while (now() < least) repeat_to(std::min(least, 2 * now()));
    result_.collective = static_cast<std::int32_t>(now());
    result_.nvls = nvls_channels();
  }

  // How many GPU blocks NVLS takes, by generation, nodes and network.
  std::int32_t nvls_channels() const {
    if (agreed_.heads == 0 || options_.variables.nvls == 0) return 0;
    if (options_.variables.nvls_channels) return *options_.variables.nvls_channels;
    if (options_.least_capability < 100) return 16;
    if (nodes_.size() == 1) return 24;
    const std::size_t per_node = result_.node_of_rank.size() / nodes_.size();
    if (nodes_.size() == 2) return options_.nic_gb_per_s >= 48 ? 32 : 24;
    return options_.nic_gb_per_s >= 96 && per_node > 8 ? 32 : 24;
  }

  const ConnectOptions& options_;
  std::vector<const NodeGraphs*> order_;
  std::vector<ConnectedNode> nodes_;
  Agreed agreed_;
  Channels result_;
  std::vector<std::vector<TreeLinks>> second_;
};

// Lowest set bit of a node's number: how far down it stands. Node 0 is the root and has one child.
TreeNode binary_tree(std::int32_t nodes, std::int32_t node) {
  std::int32_t bit = 1;
  while (bit < nodes && (bit & node) == 0) bit <<= 1;
  TreeNode place;
  if (node == 0) {
    if (nodes > 1) place.down[1] = bit >> 1;
    return place;
  }
  place.up = (node ^ bit) | bit << 1;
  if (place.up >= nodes) place.up = node ^ bit;
  place.child = node < place.up ? 0 : 1;
  std::int32_t step = bit >> 1;
  if (step == 0) return place;
  place.down[0] = node - step;
  while (step > 0 && node + step >= nodes) step >>= 1;
  if (step > 0) place.down[1] = node + step;
  return place;
}

double nvlink_gb_per_s(std::int32_t capability) { return nvlink_bytes_per_s(capability) / 1e9; }

// To ranks elsewhere: each port of the GPU, and as many as its bandwidth needs.
std::int32_t network_channels(const System& system, std::int32_t gpu) {
  if (system.variables.net_peer_channels) return *system.variables.net_peer_channels;
  if (system.all(NodeKind::kNet).empty()) return 2;
  const std::int32_t node = system.all(NodeKind::kGpu)[static_cast<std::size_t>(gpu)];
  float to_cpu = 0;
  for (const std::int32_t l : system.nodes[static_cast<std::size_t>(node)].links) {
    const SystemLink& link = system.links[static_cast<std::size_t>(l)];
    if (link.kind == LinkClass::kPci || link.kind == LinkClass::kC2c)
      to_cpu = std::max(to_cpu, link.gb_per_s);
  }
  // Ports until they fill the GPU's own link.
  std::int32_t ports = 0;
  float rate = 0;
  for (const std::int32_t port : nearest(system, node, NodeKind::kNet)) {
    if (ports > 0 && rate >= to_cpu) break;
    ++ports;
    rate += system.path(node, system.all(NodeKind::kNet)[static_cast<std::size_t>(port)]).gb_per_s;
  }
  const std::int32_t each = system.variables.p2p_channel_net_gb_per_s;
  return std::max(ports, (static_cast<std::int32_t>(rate) + each - 1) / each);
}

}  // namespace

// The second one is mirrored, or shifted by one where that would leave the middle node in place.
std::array<TreeNode, 2> double_tree(std::int32_t nodes, std::int32_t node) {
  const bool shift = nodes % 2 == 1;
  TreeNode second = binary_tree(nodes, shift ? (node - 1 + nodes) % nodes : nodes - 1 - node);
  const auto back = [&](std::int32_t& n) {
    if (n >= 0) n = shift ? (n + 1) % nodes : nodes - 1 - n;
  };
  back(second.up);
  for (std::int32_t& n : second.down) back(n);
  return {binary_tree(nodes, node), second};
}

Channels connect_nodes(const std::vector<NodeGraphs>& nodes, const ConnectOptions& options) {
  return Connector(nodes, options).connect();
}

std::string rings_text(const Channels& channels) {
  std::string text;
  for (std::size_t c = 0; c < channels.rings.size(); ++c)
    text += fmt::format("Channel {:02}/{:02} : {}\n", c, channels.rings.size(),
                        fmt::join(channels.rings[c], " "));
  return text;
}

std::string trees_text(const Channels& channels, std::int32_t rank) {
  std::string text = "Trees";
  for (std::size_t c = 0; c < channels.trees.size(); ++c) {
    const TreeLinks& links = channels.trees[c][static_cast<std::size_t>(rank)];
    text += fmt::format(" [{}] {}->{}->{}", c, fmt::join(links.down, "/"), rank, links.up);
  }
  return text;
}

P2pChannels p2p_channels(const System& system, std::int32_t collective_channels, std::int32_t ranks,
                         bool several_nodes) {
  const Variables& variables = system.variables;
  const auto power_up = [](std::int32_t n) {
    return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(std::max(n, 1))));
  };
  std::int32_t per_peer = 64;
  const auto& gpus = system.all(NodeKind::kGpu);
  for (const std::int32_t a : gpus)
    for (const std::int32_t b : gpus) {
      if (a == b) continue;
      const SystemPath& path = system.path(b, a);
      const double link = nvlink_gb_per_s(system.nodes[static_cast<std::size_t>(a)].compute_capability);
      const bool nvlink = path.type == PathClass::kNvl || path.type == PathClass::kNvb;
      per_peer = std::min(
          per_peer, nvlink ? 2 * std::max(1, static_cast<std::int32_t>(path.gb_per_s / link + 1e-6)) : 2);
    }
  if (several_nodes)
    for (std::int32_t gpu = 0; gpu < system.gpu_count(); ++gpu)
      per_peer = std::min(per_peer, network_channels(system, gpu));
  P2pChannels result;
  result.all = power_up(
      std::max(std::min(collective_channels, variables.max_p2p_channels), variables.min_p2p_channels));
  result.per_peer = power_up(per_peer);
  if (several_nodes && !variables.net_peer_channels) {
    // All peers in one round: eight of them share a channel.
    while (result.per_peer > 1 && result.per_peer * ((ranks + 7) / 8) > result.all) result.per_peer /= 2;
  } else {
    result.per_peer = std::min(result.per_peer, result.all);
  }
  return result;
}

}  // namespace orrery::nccl

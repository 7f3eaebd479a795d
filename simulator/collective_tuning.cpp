#include "simulator/collective_tuning.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <limits>

namespace orrery::nccl {
namespace {

using PerProtocol = std::array<double, 3>;  // LL, LL128, Simple.
using PerNodes = std::array<double, 3>;     // One node, two, more.

// All tables: NCCL 2.30.7, src/graph/tuning.cc.
constexpr PerProtocol kTreeBase{6.8, 14, 8.4}, kRingBase{6.6, 14, 8.4};
constexpr PerProtocol kTreeNvLink{0.6, 1.25, 4}, kRingNvLink{0.6, 1.9, 3.4};
constexpr PerProtocol kTreePcie{1, 1.9, 4}, kRingPcie{1, 2.5, 5.7};
constexpr PerProtocol kTreeNetwork{5, 8.5, 14}, kRingNetwork{2.7, 4, 14};
constexpr double kNvls = 25, kNvlsTreeNetwork = 20.9;
// Time to post a message to the network; three of them per step with the Simple protocol.
constexpr double kPost = 1, kPostAmd = 2;

// By generation, and by one node, two nodes, more.
constexpr std::array<PerNodes, 4> kLlCeiling{
    {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr std::array<double, 4> kRingLl128{20, 20, 36.7, 40};  // Per channel, as the next three.
constexpr std::array<PerNodes, 4> kTreeLl128{
    {{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<PerNodes, 4> kTree{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr std::array<PerNodes, 4> kNvlsTree{
    {{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}}};
constexpr double kNvlsHopper = 0.85, kNvlsBlackwell = 0.74;

// Trees by floor(log2(bytes / 64)).
constexpr std::array<std::array<double, 24>, 3> kTreeCorrection{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

std::size_t row(Generation generation) { return static_cast<std::size_t>(generation); }
std::size_t row(Protocol protocol) { return static_cast<std::size_t>(protocol); }
std::size_t column(std::int32_t nodes) { return nodes == 1 ? 0 : nodes == 2 ? 1 : 2; }
int floor_log2(std::int64_t n) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))) - 1; }

// Inside a node the GPU counts, between nodes the CPU.
double ll_ceiling(const Communicator& comm) {
  const std::size_t by = comm.nodes == 1 ? row(comm.generation) : comm.amd_host ? 1 : 0;
  return kLlCeiling[by][column(comm.nodes)];
}

int ring_steps(CollectiveKind kind, std::int32_t ranks) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * (ranks - 1);
    case CollectiveKind::kBroadcast: return ranks;
    default: return ranks - 1;
  }
}

double speed(const ChannelGraph& graph, const Communicator& comm) {
  return comm.nodes <= 2 ? graph.node_gb_per_s : graph.network_gb_per_s;
}

// ---- Bandwidth.

double ring_bandwidth(CollectiveKind kind, Protocol protocol, const Communicator& comm) {
  double all = comm.ring.channels * speed(comm.ring, comm);
  if (protocol == Protocol::kLl) all = std::min(ll_ceiling(comm), all / 2);
  if (protocol == Protocol::kLl128)
    all = std::min(0.92 * all, comm.ring.channels * kRingLl128[row(comm.generation)]);
  return all * comm.ranks / ring_steps(kind, comm.ranks);
}

double tree_bandwidth(Protocol protocol, const Communicator& comm) {
  const std::size_t by = row(comm.generation), at = column(comm.nodes);
  const std::int32_t channels = comm.tree.channels;
  double all = std::min(0.92 * channels * speed(comm.tree, comm), channels * kTree[by][at]);
  if (protocol == Protocol::kLl) all = std::min(all / 3.8, ll_ceiling(comm));
  if (protocol == Protocol::kLl128)
    all = std::min(all * (comm.nodes == 1 ? 7.0 / 9 : 120.0 / 128), channels * kTreeLl128[by][at]);
  // A node whose traffic enters at one GPU; on one node nothing enters.
  if (comm.plain_tree && comm.nodes > 1) all *= 0.85;
  return all / 2;
}

double nvls_bandwidth(CollectiveKind kind, bool tree, const Communicator& comm) {
  const ChannelGraph& graph = comm.nvls;
  if (graph.channels < 2 || comm.generation < Generation::kHopper) return 0;
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  const double ranks_per_node = comm.ranks_per_node();
  double node = graph.node_gb_per_s *
                (comm.generation == Generation::kHopper ? kNvlsHopper : kNvlsBlackwell) *
                (graph.channels - 1) / graph.channels;
  node *= all_reduce ? 2 : (ranks_per_node - 1) / ranks_per_node;
  const double network = graph.network_gb_per_s * (tree && comm.nodes <= 2 ? 2 : 1);
  double each = std::min(node, network);
  if (tree) each = std::min(each, kNvlsTree[row(comm.generation)][column(comm.nodes)]);
  const double all = graph.channels * each;
  return all_reduce ? all * comm.ranks / ring_steps(kind, comm.ranks) : all;
}

// ---- Latency.

double ring_latency(CollectiveKind kind, Protocol protocol, const Communicator& comm) {
  const StepLatency latency = step_latency(Algorithm::kRing, protocol, comm);
  if (kind == CollectiveKind::kBroadcast) {
    const std::size_t by = row(protocol);
    const double node = (comm.nvlink ? kRingNvLink : kRingPcie)[by];
    return latency.base_us + (comm.nodes > 1 ? kRingNetwork[by] : node);
  }
  const int steps = ring_steps(kind, comm.ranks);
  const int between = (comm.nodes - 1) * (kind == CollectiveKind::kAllReduce ? 2 : 1);
  return latency.base_us + (steps - between) * latency.node_us + between * latency.network_us;
}

double tree_latency(Protocol protocol, const Communicator& comm) {
  const StepLatency latency = step_latency(Algorithm::kTree, protocol, comm);
  return latency.base_us +
         2 * ((comm.ranks_per_node() - 1) * latency.node_us + floor_log2(comm.nodes) * latency.network_us);
}

// ---- For one size.

Price price_for(std::int64_t bytes, CollectiveKind kind, Algorithm algorithm, Protocol protocol,
                const Communicator& comm) {
  Price result = price(kind, algorithm, protocol, comm);
  if (algorithm == Algorithm::kTree && bytes >= 64) {
    const int k = floor_log2(bytes / 64);
    if (k < 23) result.gb_per_s *= kTreeCorrection[row(protocol)][static_cast<std::size_t>(k)];
  }
  // Channels are doubled once the prices are made.
  const double share = static_cast<double>(bytes) / (2.0 * comm.ring.channels * comm.ranks);
  if (algorithm == Algorithm::kRing && protocol == Protocol::kSimple && comm.nodes > 1 &&
      kind == CollectiveKind::kAllReduce && share >= 64)
    result.latency_us *= comm.generation < Generation::kAmpere ? 1.9 : 1.4;
  return result;
}

}  // namespace

Price price(CollectiveKind kind, Algorithm algorithm, Protocol protocol, const Communicator& comm) {
  assert(kind != CollectiveKind::kAllToAll && comm.ranks > 1);
  const bool all_reduce = kind == CollectiveKind::kAllReduce;
  // Lines of 128 bytes must arrive whole, which PCIe doesn't promise.
  if (protocol == Protocol::kLl128 && !comm.nvlink && comm.ranks > comm.nodes) return {};
  switch (algorithm) {
    case Algorithm::kRing: return {ring_latency(kind, protocol, comm), ring_bandwidth(kind, protocol, comm)};
    case Algorithm::kTree:
      if (!all_reduce) return {};
      return {tree_latency(protocol, comm), tree_bandwidth(protocol, comm)};
    case Algorithm::kNvls:
      if (protocol != Protocol::kSimple || comm.nodes > 1 || kind == CollectiveKind::kBroadcast) return {};
      return {kNvls, nvls_bandwidth(kind, false, comm)};
    case Algorithm::kNvlsTree:
      if (protocol != Protocol::kSimple || comm.nodes == 1 || !all_reduce) return {};
      return {kNvls + 2 * floor_log2(comm.nodes) * kNvlsTreeNetwork, nvls_bandwidth(kind, true, comm)};
  }
  return {};
}

StepLatency step_latency(Algorithm algorithm, Protocol protocol, const Communicator& comm) {
  const std::size_t by = row(protocol);
  const double ring = (comm.nvlink ? kRingNvLink : kRingPcie)[by];
  switch (algorithm) {
    case Algorithm::kTree:
      return {kTreeBase[by], (comm.nvlink ? kTreeNvLink : kTreePcie)[by], kTreeNetwork[by]};
    case Algorithm::kRing: {
      // With one GPU per node NCCL takes the tree's network latency.
      const double network = (comm.ranks == comm.nodes ? kTreeNetwork : kRingNetwork)[by];
      const double post = (comm.amd_host ? kPostAmd : kPost) * (protocol == Protocol::kSimple ? 3 : 1);
      return {kRingBase[by], comm.nodes == 1 ? ring : std::max(ring, post), network};
    }
    // NCCL's figure is for a whole call. A step through the switch takes as long as one of a ring.
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: return {kNvls - 2 * ring, ring, kNvlsTreeNetwork};
  }
  return {};
}

Choice choose(CollectiveKind kind, std::int64_t bytes, const Communicator& comm) {
  Choice best;
  double least = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm :
       {Algorithm::kTree, Algorithm::kRing, Algorithm::kNvls, Algorithm::kNvlsTree})
    for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
      const Price it = price_for(bytes, kind, algorithm, protocol, comm);
      if (it.gb_per_s <= 0 || it.microseconds(bytes) >= least) continue;
      least = it.microseconds(bytes);
      best = {algorithm, protocol, it};
    }
  return best;
}

}  // namespace orrery::nccl

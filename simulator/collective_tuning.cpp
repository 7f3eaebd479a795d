// Bandwidth and latency of one algorithm with one protocol.

#include "simulator/collective_tuning.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "simulator/collective_tuning_tables.hpp"

namespace orrery::nccl {
namespace {

// Time to post a message to the network; three of them per step with the Simple protocol.
constexpr double kPost = 1, kPostAmd = 2;

std::size_t row(Generation generation) { return static_cast<std::size_t>(generation); }
std::size_t row(Protocol protocol) { return static_cast<std::size_t>(protocol); }
std::size_t column(std::int32_t nodes) { return nodes == 1 ? 0 : nodes == 2 ? 1 : 2; }
int floor_log2(std::int64_t n) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n))) - 1; }

bool gathers(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter;
}

// Inside a node the GPU counts, between nodes the CPU.
double ll_ceiling(const Communicator& comm) {
  const std::size_t by = comm.nodes == 1 ? row(comm.generation) : comm.amd_host ? 1 : 0;
  return tuning_tables(comm.nccl_minor).ll_ceiling[by][column(comm.nodes)];
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

const ChannelGraph& graph_of(Algorithm algorithm, const Communicator& comm) {
  switch (algorithm) {
    case Algorithm::kRing: return comm.ring;
    case Algorithm::kTree:
    case Algorithm::kPat: return comm.tree;
    case Algorithm::kCollNetDirect: return comm.collnet_direct;
    case Algorithm::kCollNetChain: return comm.collnet_chain;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: return comm.nvls;
  }
  return comm.ring;
}

PathClass node_path(const ChannelGraph& graph, const Communicator& comm) {
  const bool alone = comm.ranks == comm.nodes;
  return graph.node_path.value_or(comm.nvlink ? PathClass::kNvl : alone ? PathClass::kLoc : PathClass::kPhb);
}

// ---- Bandwidth.

double ring_bandwidth(CollectiveKind kind, Protocol protocol, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  double all = comm.ring.channels * speed(comm.ring, comm);
  if (protocol == Protocol::kLl) {
    const bool others = kind != CollectiveKind::kAllReduce && comm.nodes == 1;
    all = std::min(ll_ceiling(comm), all * (others ? tables.ring_ll_share_others : tables.ring_ll_share));
  }
  if (protocol == Protocol::kLl128) {
    const double share = comm.ranks_per_node() < 2 ? tables.ll128_share_one_gpu : 0.92;
    all = std::min(share * all,
                   comm.ring.channels * tables.ring_ll128[row(comm.generation)][column(comm.nodes)]);
  }
  return all * comm.ranks / ring_steps(kind, comm.ranks);
}

double tree_bandwidth(Protocol protocol, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  const std::size_t by = row(comm.generation), at = column(comm.nodes);
  const std::int32_t channels = comm.tree.channels;
  double all = std::min(0.92 * channels * speed(comm.tree, comm), channels * tables.tree_most[by][at]);
  if (protocol == Protocol::kLl) all = std::min(all / 3.8, ll_ceiling(comm));
  if (protocol == Protocol::kLl128)
    all = std::min(all * (comm.nodes == 1 ? 7.0 / 9 : 120.0 / 128), channels * tables.tree_ll128[by][at]);
  // A node whose traffic enters at one GPU; on one node nothing enters.
  if (comm.plain_tree && comm.nodes > 1) all *= 0.85;
  return all / 2;
}

double nvls_efficiency(CollectiveKind kind, bool tree, const Communicator& comm) {
  if (kind != CollectiveKind::kAllReduce) return 5.0 / 6;
  if (!tree || comm.nccl_minor >= 20) return 5.0 / 6;
  return 0.70 * comm.nodes / (2.0 * (comm.nodes - 1));
}

// Before 2.28: as other algorithms, with a factor.
double old_nvls_speed(CollectiveKind kind, bool tree, const Communicator& comm) {
  const ChannelGraph& graph = comm.nvls;
  double each = speed(graph, comm);
  if (tree && comm.nccl_minor >= 19)
    each =
        std::min(graph.node_gb_per_s, comm.nodes <= 2 ? graph.network_gb_per_s : graph.network_gb_per_s / 2);
  return each * nvls_efficiency(kind, tree, comm);
}

double nvls_speed(CollectiveKind kind, bool tree, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  const ChannelGraph& graph = comm.nvls;
  const double ranks_per_node = comm.ranks_per_node();
  double node = graph.node_gb_per_s * tables.nvls_efficiency[row(comm.generation)] * (graph.channels - 1) /
                graph.channels;
  node *= kind == CollectiveKind::kAllReduce ? 2 : (ranks_per_node - 1) / ranks_per_node;
  const double network = graph.network_gb_per_s * (tree && comm.nodes <= 2 ? 2 : 1);
  const double each = std::min(node, network);
  return tree ? std::min(each, tables.nvls_tree_most[row(comm.generation)][column(comm.nodes)]) : each;
}

double nvls_bandwidth(CollectiveKind kind, bool tree, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  if (comm.nvls.channels < 2 || comm.generation < Generation::kHopper) return 0;
  if (!tables.has_nvls || (tree && !tables.has_nvls_tree)) return 0;
  const double all = comm.nvls.channels *
                     (tables.nvls_by_heads ? nvls_speed(kind, tree, comm) : old_nvls_speed(kind, tree, comm));
  return kind == CollectiveKind::kAllReduce ? all * comm.ranks / ring_steps(kind, comm.ranks) : all;
}

double collnet_bandwidth(CollectiveKind kind, bool direct, const Communicator& comm) {
  const ChannelGraph& graph = direct ? comm.collnet_direct : comm.collnet_chain;
  if (graph.channels == 0) return 0;
  double all = graph.channels * graph.node_gb_per_s;
  if (direct && gathers(kind))
    return comm.ranks_per_node() * std::min(graph.node_gb_per_s, 0.9 * graph.network_gb_per_s);
  if (direct) {
    // Heads that are fewer than GPUs are shared.
    const double shared = comm.ranks_per_node() / graph.channels;
    all /= shared - (shared - 1) / 2;
    if (comm.generation >= Generation::kHopper) all *= 0.85;
  }
  return all / 2;
}

// ---- Latency.

double node_latency(const Latencies& latencies, const ChannelGraph& graph, Protocol protocol,
                    const Communicator& comm) {
  return (node_path(graph, comm) == PathClass::kNvl ? latencies.nvlink : latencies.pcie)[row(protocol)];
}

// With one GPU per node NCCL takes the tree's. What the port itself needs comes on top, twice where the
// receiver must also flush.
double network_latency(const Latencies& latencies, const ChannelGraph& graph, Protocol protocol,
                       const Communicator& comm) {
  const Latencies& of = comm.ranks == comm.nodes ? tuning_tables(comm.nccl_minor).tree : latencies;
  return of.network[row(protocol)] + graph.network_latency_us * (protocol == Protocol::kSimple ? 2 : 1);
}

double ring_latency(CollectiveKind kind, Protocol protocol, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  const std::size_t by = row(protocol);
  const int steps = ring_steps(kind, comm.ranks);
  if (kind == CollectiveKind::kBroadcast) {
    const auto hardware = [&](const Latencies& of) {
      return comm.nodes > 1 ? of.network[by] : node_latency(of, comm.ring, protocol, comm);
    };
    if (comm.ring.same_channels) return tables.ring.base[by] + hardware(tables.ring);
    return tables.ring.base[by] + steps * hardware(protocol == Protocol::kSimple ? tables.tree : tables.ring);
  }
  const StepLatency step = step_latency(Algorithm::kRing, protocol, comm);
  const int between = (comm.nodes - 1) * (kind == CollectiveKind::kAllReduce ? 2 : 1);
  return step.base_us + (steps - between) * step.node_us + between * step.network_us;
}

double tree_latency(Protocol protocol, const Communicator& comm) {
  const StepLatency step = step_latency(Algorithm::kTree, protocol, comm);
  return step.base_us +
         2 * ((comm.ranks_per_node() - 1) * step.node_us + floor_log2(comm.nodes) * step.network_us);
}

double nvls_latency(bool tree, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  const Latencies& of = tree ? tables.nvls_tree : tables.nvls;
  const double node = of.base[2] + node_latency(of, comm.nvls, Protocol::kSimple, comm);
  if (comm.nodes == 1) return node;
  const double network = network_latency(of, comm.nvls, Protocol::kSimple, comm);
  return node + (tree ? 2 * floor_log2(comm.nodes) : 1) * network;
}

double collnet_latency(bool direct, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  const Latencies& of = direct ? tables.collnet_direct : tables.collnet_chain;
  const ChannelGraph& graph = direct ? comm.collnet_direct : comm.collnet_chain;
  const double others = comm.ranks_per_node() - 1;
  const double node = node_latency(of, graph, Protocol::kSimple, comm);
  const double network = network_latency(of, graph, Protocol::kSimple, comm);
  return direct ? 2 * (std::min(1.0, others) * node + 0.4 * others) + network : 2 * others * node + network;
}

double pat_latency(const Communicator& comm) {
  const Latencies& of = tuning_tables(comm.nccl_minor).pat;
  // Rounds are short, and every rank's part costs.
  return of.base[2] + floor_log2(comm.nodes) * network_latency(of, comm.tree, Protocol::kSimple, comm) / 3.5 +
         2.8 * comm.ranks;
}

bool collnet_applies(CollectiveKind kind, bool direct, const Communicator& comm) {
  if (!comm.collnet || comm.nodes < comm.variables.collnet_nodes || comm.nodes < 2) return false;
  if (direct && (!comm.nvswitch || comm.ranks_per_node() > 8)) return false;
  if (kind == CollectiveKind::kAllReduce) return true;
  return direct && gathers(kind) && comm.collnet_gathers;
}

}  // namespace

Generation generation_of(std::int32_t compute_capability) {
  if (compute_capability >= 100) return Generation::kBlackwell;
  if (compute_capability >= 90) return Generation::kHopper;
  return compute_capability >= 80 ? Generation::kAmpere : Generation::kVolta;
}

Price price(CollectiveKind kind, Algorithm algorithm, Protocol protocol, const Communicator& comm) {
  assert(kind != CollectiveKind::kAllToAll && comm.ranks > 1);
  const bool all_reduce = kind == CollectiveKind::kAllReduce, simple = protocol == Protocol::kSimple;
  switch (algorithm) {
    case Algorithm::kRing: return {ring_latency(kind, protocol, comm), ring_bandwidth(kind, protocol, comm)};
    case Algorithm::kTree:
      if (!all_reduce) return {};
      return {tree_latency(protocol, comm), tree_bandwidth(protocol, comm)};
    case Algorithm::kCollNetDirect:
    case Algorithm::kCollNetChain: {
      const bool direct = algorithm == Algorithm::kCollNetDirect;
      if (!simple || !collnet_applies(kind, direct, comm)) return {};
      return {collnet_latency(direct, comm), collnet_bandwidth(kind, direct, comm)};
    }
    case Algorithm::kNvls:
      // Between nodes the network must reduce too.
      if (!simple || kind == CollectiveKind::kBroadcast ||
          (comm.nodes > 1 && !(comm.collnet && (all_reduce || comm.collnet_gathers))))
        return {};
      return {nvls_latency(false, comm), nvls_bandwidth(kind, false, comm)};
    case Algorithm::kNvlsTree:
      if (!simple || comm.nodes == 1 || !all_reduce) return {};
      return {nvls_latency(true, comm), nvls_bandwidth(kind, true, comm)};
    case Algorithm::kPat: {
      const double share = tuning_tables(comm.nccl_minor).pat_share;
      if (!simple || !gathers(kind) || share == 0) return {};
      return {pat_latency(comm), share * comm.tree.channels * speed(comm.tree, comm)};
    }
  }
  return {};
}

StepLatency step_latency(Algorithm algorithm, Protocol protocol, const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  const std::size_t by = row(protocol);
  const double ring = node_latency(tables.ring, comm.ring, protocol, comm);
  switch (algorithm) {
    case Algorithm::kTree: {
      const bool power =
          comm.power_host && protocol == Protocol::kSimple && node_path(comm.tree, comm) != PathClass::kNvl;
      return {tables.tree.base[by],
              power ? tables.ring.pcie[by] : node_latency(tables.tree, comm.tree, protocol, comm),
              network_latency(tables.tree, comm.tree, protocol, comm)};
    }
    // NCCL's figure is for a whole call. A step through the switch takes as long as one of a ring.
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree: {
      const Latencies& of = algorithm == Algorithm::kNvlsTree ? tables.nvls_tree : tables.nvls;
      const double call = of.base[2] + node_latency(of, comm.nvls, Protocol::kSimple, comm);
      return {call - 2 * ring, ring, network_latency(of, comm.nvls, Protocol::kSimple, comm)};
    }
    default: break;
  }
  const double post = comm.variables.net_overhead_us.value_or(comm.amd_host ? kPostAmd : kPost) *
                      (protocol == Protocol::kSimple ? 3 : 1);
  return {tables.ring.base[by], comm.nodes == 1 ? ring : std::max(ring, post),
          network_latency(tables.ring, comm.ring, protocol, comm)};
}

Price price_for(std::int64_t bytes, CollectiveKind kind, Algorithm algorithm, Protocol protocol,
                const Communicator& comm) {
  const TuningTables& tables = tuning_tables(comm.nccl_minor);
  Price result = price(kind, algorithm, protocol, comm);
  const int k = bytes >= 64 ? floor_log2(bytes / 64) : -1;
  const bool nvls_tree = algorithm == Algorithm::kNvlsTree && tables.corrects_nvls_tree &&
                         comm.generation == Generation::kBlackwell && comm.x86_host;
  const int most = algorithm == Algorithm::kTree ? tables.tree_corrections : nvls_tree ? 24 : 0;
  if (kind == CollectiveKind::kAllReduce && k >= 0 && k < most)
    result.gb_per_s *= kTreeCorrection[row(protocol)][static_cast<std::size_t>(k)];
  // Channels are doubled once the prices are made.
  const double share = static_cast<double>(bytes) / (2.0 * comm.ring.channels * comm.ranks);
  if (algorithm == Algorithm::kRing && protocol == Protocol::kSimple && comm.nodes > 1 &&
      kind == CollectiveKind::kAllReduce && share >= 64)
    result.latency_us *= comm.generation < Generation::kAmpere ? 1.9 : 1.4;
  return result;
}

// Lines of 128 bytes must arrive whole, which PCIe doesn't promise.
bool ll128_is_safe(Algorithm algorithm, const Communicator& comm) {
  const ChannelGraph& graph = graph_of(algorithm, comm);
  const bool hopper = comm.generation >= Generation::kHopper;
  if (comm.mixed_gpus && !hopper) return false;
  const PathClass network = hopper && comm.variables.ll128_c2c ? PathClass::kPxn : PathClass::kPxb;
  return node_path(graph, comm) <= PathClass::kNvb &&
         (comm.nodes == 1 || graph.network_path.value_or(PathClass::kPix) <= network);
}

}  // namespace orrery::nccl

#pragma once
// How NCCL prices its algorithms and picks one: its tuning model (2.10 to 2.30, src/graph/tuning.cc and
// enqueue.cc), restated. Its own units: microseconds and GB/s.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "model/program.hpp"
#include "topology/nccl/nccl_connect.hpp"

namespace orrery::nccl {

// By compute capability: below 80, 80 to 89, 90 to 99, 100 and above.
enum class Generation : std::uint8_t { kVolta, kAmpere, kHopper, kBlackwell };
Generation generation_of(std::int32_t compute_capability);

// NCCL's order: decides ties.
enum class Algorithm : std::uint8_t { kTree, kRing, kCollNetDirect, kCollNetChain, kNvls, kNvlsTree, kPat };
inline constexpr std::size_t kAlgorithmCount = 7;
enum class Protocol : std::uint8_t { kLl, kLl128, kSimple };
inline constexpr std::size_t kProtocolCount = 3;
std::string_view to_string(Algorithm algorithm);  // "NVLSTree"
std::string_view to_string(Protocol protocol);    // "LL128"

// What the search for paths found for one family of algorithms.
struct ChannelGraph {
  std::int32_t channels = 0;  // 0: nothing found.
  double node_gb_per_s = 0;   // Per channel, inside a node.
  double network_gb_per_s = 0;
  // Empty: NVL or PHB as Communicator::nvlink says, PIX.
  std::optional<PathClass> node_path = {}, network_path = {};
  double network_latency_us = 0;
  bool same_channels = true;
};

struct Communicator {
  std::int32_t ranks = 1, nodes = 1;
  Generation generation = Generation::kHopper;
  bool nvlink = true;      // Between all ranks of a node.
  bool plain_tree = true;  // All network traffic of a tree at one GPU of a node; else shared by two.
  bool amd_host = false;   // Or of several makers.
  ChannelGraph ring, tree, nvls;
  ChannelGraph collnet_direct = {}, collnet_chain = {};
  std::int32_t nccl_minor = 30;
  bool nvswitch = true, power_host = false, x86_host = true;
  bool mixed_gpus = false;          // Of several compute capabilities.
  bool collnet = false;             // The network reduces, and is allowed to.
  bool collnet_gathers = false;     // Its plugin also gathers and scatters, with a head for every local rank.
  bool host_driven_network = true;  // Messages are posted by the CPU.
  Variables variables;

  double ranks_per_node() const { return static_cast<double>(ranks) / nodes; }
};

// Of one search per node type; `graphs` are the worst of all nodes.
Communicator make_communicator(const System& system, const Graphs& graphs, std::int32_t ranks,
                               std::int32_t nodes);

struct Price {
  double latency_us = 0;
  double gb_per_s = 0;  // Of the payload ("algorithm bandwidth"). 0: not available.

  double microseconds(std::int64_t bytes) const {
    return latency_us + static_cast<double>(bytes) / (1e3 * gb_per_s);
  }
};

// For a payload of any size. REQUIRES: `kind` isn't an all-to-all, which NCCL doesn't price.
Price price(CollectiveKind kind, Algorithm algorithm, Protocol protocol, const Communicator& comm);
// With the corrections for a size.
Price price_for(std::int64_t bytes, CollectiveKind kind, Algorithm algorithm, Protocol protocol,
                const Communicator& comm);

// What of a call decides, besides its kind and size.
struct CallTraits {
  std::optional<DType> type;  // Empty: one that all algorithms take.
  bool sum = true;            // Else minimum or maximum.
  bool scaled = false;        // Averages: numbers are multiplied first.
};

// What a lone call takes before its first step, and what a step takes inside a node and between nodes: what
// price()'s latency is made of. Algorithms other than tree and NVLS, and all-to-alls,
// which NCCL doesn't price, take the ring's.
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
// THROWS Error(kInput) when NCCL_ALGO and NCCL_PROTO leave nothing, as NCCL does since 2.24.
Choice choose(CollectiveKind kind, std::int64_t bytes, const Communicator& comm,
              const CallTraits& traits = {});

struct Cell {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  Price price;
  double microseconds = 0;  // 0: not available.
  std::string_view reason;  // Why not; empty when it is.
};
struct Explanation {
  std::vector<Cell> cells;            // All, in NCCL's order.
  std::size_t best = 0;               // Into `cells`.
  std::optional<std::size_t> second;  // The next cheapest.
  double margin = 0;                  // By how much longer that takes: 0.1 for a tenth.
};
Explanation explain(CollectiveKind kind, std::int64_t bytes, const Communicator& comm,
                    const CallTraits& traits = {});
std::string to_text(const Explanation& explanation);

// Whether NCCL trusts the links of this algorithm with LL128.
bool ll128_is_safe(Algorithm algorithm, const Communicator& comm);

// How much of the GPU one call takes.
struct CallPlan {
  std::int32_t channels = 1, threads = 0;  // Threads of each channel.
  std::int32_t used_channels = 1;          // Those that a lone call's payload reaches.
};
CallPlan plan_call(CollectiveKind kind, std::int64_t bytes, const Choice& choice, const Communicator& comm,
                   std::int32_t collective_channels, std::int32_t nvls_channels);
// Bytes per thread below which channels, then threads, are given up: by algorithm and protocol.
std::int64_t thread_threshold(Algorithm algorithm, Protocol protocol, std::int32_t ranks);

// Which algorithms (or protocols) NCCL_ALGO (NCCL_PROTO) leaves to a collective.
struct Selection {
  std::array<bool, kAlgorithmCount> algorithms{};
  std::array<bool, kProtocolCount> protocols{};
  bool ll128_forced = false;  // Named: then it is used where NCCL wouldn't.
};
// "list" or "function:list;function:list"; a list that begins with ^ takes away; case doesn't count.
// THROWS Error(kInput) on a name that NCCL doesn't know.
Selection selection(CollectiveKind kind, const Variables& variables);

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

// The graphs that NCCL's search (topology/nccl/nccl_search.hpp) ends with on machines where all GPUs of a
// node look alike: the fastest channels that fill the links, from its list of speeds, doubled and raised by
// its rules.
Communicator find_channels(const GroupLinks& links);

}  // namespace orrery::nccl

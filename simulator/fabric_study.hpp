#pragma once
// What routing makes of a cluster's fabric, side by side: the same traffic with adaptive routing, ECMP and
// queue feedback; and what one connection needs to fill its wire.

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/fabric_load.hpp"
#include "simulator/queue_pairs.hpp"

namespace orrery {

struct TrafficRequest {
  std::vector<TrafficPattern> patterns = {TrafficPattern::kRing, TrafficPattern::kPermutation,
                                          TrafficPattern::kAllToAll};
  std::int32_t jobs = 1;  // Of equal size, each with the pattern's traffic; nodes left over are idle.
  bool interleaved = false;
  std::int32_t queue_pairs = 1;  // Looked at besides 1.
  std::int32_t seeds = 8;        // Hashes (and permutations) that the figures are means over.
  double post_s = 1e-6;  // Per message: NCCL prices its network proxy at 1 to 2 us (NCCL_NET_OVERHEAD).
  // Of one connection. A packet; NCCL's chunks of a message, its slots and its slices; and whole buffers.
  std::vector<std::int64_t> messages = {4 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20, 8 << 20};
  std::vector<std::int32_t> depths = {1, 8, 64, 256, 512};  // Messages that may be under way.
};

// Rates are per network card; means over seeds.
struct FabricRow {
  TrafficPattern pattern = TrafficPattern::kRing;
  FabricRouting routing = FabricRouting::kAdaptive;
  std::int32_t queue_pairs = 1;
  bool by_leaf_pairs = false;  // load_all_to_all(): there were too many flows to tell apart.
  std::int64_t flows = 0;
  double slowest_bytes_per_s = 0;  // Of the flow that a collective waits for, times the flows of its NIC.
  double mean_bytes_per_s = 0;
  double slowed = 0;          // Share of flows that are slower than with adaptive routing.
  double idle_links = 0;      // Share of the fabric's links that carry nothing.
  std::string slowest_flow;   // With the first seed.
  double settled = 1;         // Share of seeds with which feedback came to rest.
  double worst_slowdown = 1;  // Of a job, by the others.
  double mean_slowdown = 1;
};
// THROWS Error(kInput) for a cluster of one node or fewer nodes than twice the jobs, Error(kInfeasible) for
// more flows than fit.
std::vector<FabricRow> study_fabric(const Cluster& cluster, const TrafficRequest& request);

// One connection to the farthest node's GPU, by message size.
struct DepthRow {
  std::int64_t message_bytes = 0;
  std::int32_t least_depth = 0;  // That credits don't limit.
  struct Rate {
    std::int32_t depth = 0;
    ConnectionRate rate;
  };
  std::vector<Rate> rates;
};
// REQUIRES: the cluster has several NVLink domains.
std::vector<DepthRow> study_depth(const Cluster& cluster, const TrafficRequest& request);

}  // namespace orrery

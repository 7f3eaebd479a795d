#pragma once
// One collective over a sweep of sizes, simulated chunk by chunk on a machine's links, as nccl-tests would
// measure it.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/collective_program.hpp"
#include "simulator/collective_tuning.hpp"
#include "simulator/job.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// All that a sweep can be asked for.
inline constexpr std::array kSweptCollectives{CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                              CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                              CollectiveKind::kBroadcast};
inline constexpr std::array kCollectiveAlgorithms{
    CollectiveAlgorithm::kRing,     CollectiveAlgorithm::kTree,      CollectiveAlgorithm::kHalvingDoubling,
    CollectiveAlgorithm::kChain,    CollectiveAlgorithm::kRingChain, CollectiveAlgorithm::kHierarchical,
    CollectiveAlgorithm::kNvls,     CollectiveAlgorithm::kNvlsTree,  CollectiveAlgorithm::kPat,
    CollectiveAlgorithm::kPairwise, CollectiveAlgorithm::kPxn};

struct CollectiveSweep {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::optional<CollectiveAlgorithm> algorithm;  // None: NCCL's choice for each size.
  std::optional<nccl::Protocol> protocol;        // None: the cheapest that the algorithm has.
  std::vector<std::int64_t> sizes;               // nccl-tests' bytes.
  // GPUs of the cluster, node by node, equally many of each. Empty: all.
  std::vector<std::int32_t> devices;
  std::int32_t channels = 0;     // 0: as many as NCCL uses at the size.
  std::int64_t chunk_bytes = 0;  // 0: the protocol's, or larger where a channel would have over 128 of them.
  std::int32_t root = 0;
  bool simgrid = false;  // With SimGrid's engine as well.
  JobOptions job;        // Stragglers, faults; by rank.
};

struct CollectiveRow {
  std::int64_t bytes = 0;
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::kRing;
  nccl::Protocol protocol = nccl::Protocol::kSimple;
  std::int32_t channels = 1;
  std::int64_t chunk_bytes = 0;
  SimTime time;
  double algbw_bytes_per_s = 0, busbw_bytes_per_s = 0;
  SimTime formula;                      // collective_cost's, which lowered training steps are priced at.
  std::optional<SimTime> simgrid_time;  // Where asked for.
  std::int32_t classes = 0;             // Ranks that differ, after folding.
  std::int64_t instructions = 0;        // Simulated.
};

// What the chunks of one size are sent as: the Program's spec, and the Profile whose messages cost what a
// step of the algorithm and protocol costs.
struct CollectiveSetup {
  CollectiveSpec spec;
  Profile profile;
  nccl::Protocol protocol = nccl::Protocol::kSimple;
};

// Latencies, the share of payload on the wire, slots and chunks are NCCL's; a channel is held to the rate at
// which NCCL prices it, so that on links nobody shares a ring takes NCCL's own time. Where the Profile isn't
// NCCL's (CollectiveCosts::nccl) messages cost their links and the Profile's steps.
// THROWS Error(kInput) for a sweep that can't be done on the cluster, with the reason.
CollectiveSetup collective_setup(const CollectiveSweep& sweep, std::int64_t bytes, const Router& router,
                                 const Profile& profile);

std::vector<CollectiveRow> sweep_collective(const CollectiveSweep& sweep, const Cluster& cluster,
                                            const Profile& profile);

// nccl-tests' factor from algorithm to bus bandwidth.
double bus_factor(CollectiveKind kind, std::int32_t ranks);

}  // namespace orrery

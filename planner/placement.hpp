#pragma once
// Which GPU each rank drives, which NIC its traffic takes and which CPU its process runs on: as data, made by
// a policy. A placement changes no arithmetic, only over which links it goes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"
#include "planner/plan.hpp"
#include "planner/rank_traffic.hpp"
#include "topology/cluster.hpp"

namespace orrery {

enum class PlacementPolicy : std::uint8_t {
  kLinear,             // Rank i on GPU i (mpirun --map-by slot, torchrun).
  kRoundRobinNodes,    // Rank i on node i mod nodes (mpirun --map-by node, Slurm's cyclic distribution).
  kRoundRobinSockets,  // In a node, rank after rank on another socket (mpirun --map-by socket).
  kList,               // As PlacementRequest::ranks says.
  // METIS cuts the communication graph along the machine (pods, nodes, sockets, PCIe switches, NVLink), then
  // exchanges of ranks, for as long as they help.
  kGraph,
  kExact,  // The best of all, for up to 8 GPUs.
};
std::string_view to_string(PlacementPolicy policy);  // "round-robin-nodes"
std::vector<PlacementPolicy> all_placement_policies();

// kRoundRobin: what the i-th process of a node gets that nobody binds: the i-th NIC (CPU), counting round.
// kRemote: the NIC half of them further on, the next CPU: on two sockets the other one's. kList: as the
// request says.
enum class HostBinding : std::uint8_t { kNearest, kRoundRobin, kRemote, kList };
std::string_view to_string(HostBinding binding);

inline constexpr std::int32_t kNoHopLimit = -1;

struct PlacementRequest {
  PlacementPolicy policy = PlacementPolicy::kLinear;
  std::vector<std::int32_t> ranks;  // kList: by rank its GPU, node · GPUs per node + index.
  HostBinding nic = HostBinding::kNearest, numa = HostBinding::kNearest;
  std::vector<std::int32_t> nics, cpus;  // kList: by GPU of a node.
  // PCIe links and links between CPUs on the way from one member of a group to another, at most; GPUs under
  // one PCIe switch are 2 apart, those that NVLink joins 0.
  std::int32_t max_pcie_hops = kNoHopLimit;
  std::string hop_group = "tp";  // The axis whose groups the limit is for.
};

struct RankPlacement {
  std::vector<std::int32_t> device_of;  // By rank: a permutation of the cluster's GPUs.
  std::string made_by;                  // Of kGraph: what it started from, and what came of that.
};

// THROWS Error(kInput) for a list that isn't a permutation, Error(kInfeasible) naming group and pair where
// the hop limit isn't kept (kGraph, kExact: can't be), or where the cluster is too large for the policy. The
// same input gives the same placement. REQUIRES: as many ranks as the cluster has GPUs.
RankPlacement make_placement(const RankTraffic& traffic, const Cluster& cluster,
                             const PlacementRequest& request);

// Binds the processes of a node type: to NICs and CPUs as the request says. THROWS Error(kInput) for lists
// that don't fit.
void bind_hosts(const PlacementRequest& request, NodeType& node);

// The plan with its ranks placed. Only policies that look at traffic lower it.
// REQUIRES: verify(graph) and check(plan, graph) are empty.
Plan place_ranks(Plan plan, const Graph& graph, const Cluster& cluster, const PlacementRequest& request);

}  // namespace orrery

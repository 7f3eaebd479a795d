#pragma once
// Who sends to whom over the fabric: the traffic of collectives, as connections between network cards.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topology/fabric_routes.hpp"

namespace orrery {

// On each rail (NIC i of every node) by itself, as NCCL's rings and all-to-alls run where NVLink joins the
// GPUs of a node. kRing: each node to the next one of its job. kPermutation: each node to another one, every
// node receives once; at random, and another order on each rail. kAllToAll: each node to every other one.
enum class TrafficPattern : std::uint8_t { kRing, kPermutation, kAllToAll };
std::string_view to_string(TrafficPattern pattern);  // "all-to-all"

// Connections of one job, all with something to send all the time.
struct FabricFlow {
  FabricPort from, to;
  std::int32_t job = 0;
};

// `nodes` of one job in its order. The seed is the permutation's.
std::vector<FabricFlow> traffic(TrafficPattern pattern, std::span<const std::int32_t> nodes,
                                std::int32_t nics, std::uint64_t seed, std::int32_t job = 0);

// The nodes of each of `jobs` jobs of equal size, 0 … jobs · nodes_per_job − 1 in all: one job after the
// other, or interleaved, node by node in turn, as a scheduler leaves them that fills gaps.
std::vector<std::vector<std::int32_t>> place_jobs(std::int32_t jobs, std::int32_t nodes_per_job,
                                                  bool interleaved);

}  // namespace orrery

#pragma once
// Which device does which op: placements that are finer than pipeline stages, for machines where some pairs
// of devices are joined by NVLink and others are not. A placement is data; planner/partition_lower.hpp makes
// a Program of it.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/graph.hpp"

namespace orrery {

class PartitionProblem;

enum class PartitionStrategy : std::uint8_t {
  kPerLayer,  // Blocks in their order, an interval of them to each device, so that the dearest is cheapest.
  kPerOperator,  // Each op in graph order to the device with the least to do so far; neighbours don't count.
  // METIS cuts the op graph where few bytes cross; pieces that talk much get devices with fast links.
  kNvLinkNeighbourhood
};
std::string_view to_string(PartitionStrategy strategy);  // "per-layer", …
std::vector<PartitionStrategy> all_partition_strategies();

// Ops (forward, backward and optimiser) that a piece has at least and at most.
struct PieceLimits {
  std::int32_t min = 1;
  std::int32_t max = 1'000'000'000;
  bool operator==(const PieceLimits&) const = default;
};

struct Partition {
  std::vector<std::int32_t> piece_of;   // By op.
  std::vector<std::int32_t> device_of;  // By piece. Of the first two strategies a device has one piece.
  // Partitions that were timed, of which this was the quickest.
  std::int32_t candidates = 1;

  std::int32_t pieces() const { return static_cast<std::int32_t>(device_of.size()); }
  std::int32_t device(OpId op) const { return device_of[static_cast<std::size_t>(piece_of[op.index()])]; }
};

// The limits count for kNvLinkNeighbourhood alone. THROWS Error(kInfeasible) saying why no partition keeps
// them.
Partition make_partition(const PartitionProblem& problem, PartitionStrategy strategy,
                         const PieceLimits& limits = {});

// Ops of each piece.
std::vector<std::int32_t> piece_sizes(const Partition& partition);

}  // namespace orrery

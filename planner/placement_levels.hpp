#pragma once
// Groups in two levels: within nodes and between them, and what an all-reduce by levels takes against one
// that knows nothing of nodes.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sim_time.hpp"
#include "planner/placement_machine.hpp"
#include "planner/rank_traffic.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct GroupLevels {
  std::vector<std::vector<RankId>> inside;  // The members of a group on one node, by their devices.
  std::vector<std::vector<RankId>> across;  // The members of equal place on their nodes.
};
// Nothing unless every group lies on several nodes with equally many members on each, at least two.
std::optional<GroupLevels> group_levels(const Axis& axis, const PlacementMachine& machine,
                                        const std::vector<std::int32_t>& device_of);

struct LevelTimes {
  std::string axis;
  std::int32_t per_node = 0, nodes = 0;  // Of one group.
  std::int64_t bytes = 0;
  // All groups of the axis at once, sharing the machine: NCCL's all-reduce over the whole group; a
  // reduce-scatter on each node, an all-reduce of the parts between nodes, an all-gather on each node.
  SimTime flat, by_level;
};

// Of every axis that sums gradients and has levels, for small and large messages. REQUIRES: a permutation of
// the machine's devices.
std::vector<LevelTimes> level_times(const RankTraffic& traffic, const PlacementMachine& machine,
                                    const Profile& profile, const std::vector<std::int32_t>& device_of);

}  // namespace orrery

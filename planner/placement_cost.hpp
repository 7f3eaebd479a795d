#pragma once
// What a placement sends where: bytes by the boundaries that they cross, and how far apart the members of
// groups are.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/placement_machine.hpp"
#include "planner/rank_traffic.hpp"

namespace orrery {

// Bytes that one device sends to another in a step.
struct Flow {
  std::int32_t from = 0, to = 0;
  double bytes = 0;
};
// The rings, exchanges and messages that the simulator's collectives run over: members in the order of their
// devices, over several nodes in as many channels as the node with the fewest members has.
void for_each_flow(const GroupTraffic& group, const std::vector<std::int32_t>& device_of,
                   std::int32_t gpus_per_node, const std::function<void(const Flow&)>& use);

// Bytes of a step, between GPUs and between GPUs and host memory. A byte counts once in each line that it
// belongs to, so the lines below `bytes` overlap.
struct CrossingBytes {
  double bytes = 0;
  double nvlink = 0;   // Over NVLink alone.
  double numa = 0;     // Over a link between CPUs, in any node on the way.
  double network = 0;  // From node to node.
  double leaf = 0;     // From leaf switch to leaf switch.
  double host = 0;     // To and from host memory.

  double share(double part) const { return bytes > 0 ? part / bytes : 0; }
};

// How the groups of an axis lie.
struct AxisSpread {
  std::string axis;
  std::int32_t groups = 0;      // Of two members and more.
  std::int32_t size = 0;        // Members of the largest.
  std::int32_t over_nodes = 0;  // Groups that lie on several nodes.
  std::int32_t most_nodes = 0;  // On which one group lies.
  double bytes = 0;             // That its groups send in a step.
  // PCIe links and links between CPUs on the way between two members of a node: over all such pairs.
  double mean_hops = 0;
  std::int32_t largest_hops = 0;
  std::int32_t pairs = 0;
};

struct PlacementCost {
  CrossingBytes crossing;
  std::vector<AxisSpread> axes;  // Those that send something.
  // Seconds for which links are occupied, summed over all of them: what the policies graph and exact make
  // small.
  double link_seconds = 0;
};

// REQUIRES: a permutation of the machine's devices.
PlacementCost placement_cost(const RankTraffic& traffic, const PlacementMachine& machine,
                             const std::vector<std::int32_t>& device_of);

}  // namespace orrery

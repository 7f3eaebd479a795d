#pragma once
// The network between nodes, as data: which switches there are, how wide the cables between them, and how
// flows choose among paths of equal length.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// kRailOptimised: NIC i of every node of a pod hangs on leaf switch i, and spines join all leaf switches.
// kFatTree: all NICs of a node hang on one leaf switch. kRailOnly: as rail-optimised, but nothing joins the
// rails: traffic to another rail first goes to the GPU of that rail in its own node (W. Wang et al.,
// "Rail-only", 2023). kDragonfly: switches in groups; each switch has a cable to every other one of its
// group, each group at least one to every other group (J. Kim et al., ISCA 2008). kTorus: each node has a
// router of its own with cables to its neighbours in a grid that closes on itself.
enum class FabricKind : std::uint8_t { kNone, kRailOptimised, kFatTree, kRailOnly, kDragonfly, kTorus };

// kAdaptive: flows are spread over all paths of equal length, packet by packet. kEcmp: each connection keeps
// one of them, chosen by a hash. kFeedback: as kEcmp, but leaf switches steer connections away from paths
// with long queues (simulator/fabric_load.hpp); in the simulation of a step it counts as kAdaptive, its
// ideal.
enum class FabricRouting : std::uint8_t { kAdaptive, kEcmp, kFeedback };

std::string_view to_string(FabricKind kind);        // "rail-optimised"
std::string_view to_string(FabricRouting routing);  // "adaptive"

// A tier of switches between the leaf switches and the top, which joins everything.
struct FabricTier {
  std::int32_t joins = 1;         // Leaf pods, or groups of the tier below, that make one group of this one.
  double oversubscription = 1.0;  // Bandwidth down / bandwidth up.
  std::int32_t uplinks = 0;       // Cables up from each switch; 0: as many as the oversubscription leaves.
};

struct Fabric {
  FabricKind kind = FabricKind::kRailOptimised;
  std::int32_t nodes_per_leaf = 32;  // Nodes whose NICs reach each other through leaf switches only.
  double oversubscription = 1.0;     // Leaf: bandwidth down / bandwidth up.
  double hop_latency_s = 0;          // Per switch passed.
  std::string source;
  // Of fat trees and rails. Cables up from a leaf switch; 0: one per NIC under it, over the oversubscription.
  std::int32_t uplinks = 0;
  std::vector<FabricTier> tiers;  // From the leaf switches upwards; none: spines join all leaf switches.
  FabricRouting routing = FabricRouting::kAdaptive;
  std::uint64_t hash_seed = 0;  // Of kEcmp.
  // Of a dragonfly, whose switches are its leaf switches.
  std::int32_t switches_per_group = 8;
  std::int32_t global_links = 4;  // Cables to other groups, per switch.
  // Of a torus: nodes along each of its dimensions. Their product is the number of nodes.
  std::vector<std::int32_t> torus;
  // Between two switches of a dragonfly or two routers of a torus, per direction. 0: a NIC's rate; in a torus
  // the rate of the node's NICs shared by its neighbours, but not less than one NIC's.
  double link_bytes_per_s = 0;
};

}  // namespace orrery

#include "topology/fabric_routes.hpp"

#include <cassert>

#include "base/error.hpp"
#include "base/random.hpp"
#include "topology/fabric_kinds.hpp"

namespace orrery {

std::string_view to_string(FabricKind kind) {
  switch (kind) {
    case FabricKind::kNone: return "none";
    case FabricKind::kRailOptimised: return "rail-optimised";
    case FabricKind::kFatTree: return "fat-tree";
    case FabricKind::kRailOnly: return "rail-only";
    case FabricKind::kDragonfly: return "dragonfly";
    case FabricKind::kTorus: break;
  }
  return "torus";
}

std::string_view to_string(FabricRouting routing) {
  switch (routing) {
    case FabricRouting::kAdaptive: return "adaptive";
    case FabricRouting::kEcmp: return "ecmp";
    case FabricRouting::kFeedback: break;
  }
  return "feedback";
}

// Switches hash the five-tuple, in which only addresses and the queue pair's port differ between connections.
std::uint64_t flow_hash(FabricPort from, FabricPort to, std::int32_t queue_pair, std::uint64_t seed) {
  std::uint64_t hash = mix64(seed);
  for (const std::int32_t word : {from.node, from.nic, to.node, to.nic, queue_pair})
    hash = mix64(hash ^ static_cast<std::uint64_t>(word));
  return hash;
}

std::unique_ptr<FabricRoutes> make_fabric_routes(const Cluster& cluster, bool bundled) {
  assert(cluster.nodes > 1);
  const Fabric& fabric = cluster.fabric;
  if (fabric.kind == FabricKind::kNone)
    fail(ErrorKind::kInput, "cluster {} has {} nodes but no fabric between them; give it one", cluster.name,
         cluster.nodes);
  if (fabric.nodes_per_leaf < 1 || !(fabric.oversubscription > 0))
    fail(ErrorKind::kInput,
         "cluster {}: a fabric needs at least one node per leaf and an oversubscription above 0",
         cluster.name);
  if (fabric.kind == FabricKind::kDragonfly) return make_dragonfly(cluster);
  if (fabric.kind == FabricKind::kTorus) return make_torus(cluster);
  return make_clos(cluster, bundled);
}

}  // namespace orrery

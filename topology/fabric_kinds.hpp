#pragma once
// The shapes of fabrics that make_fabric_routes() chooses from.

#include "topology/fabric_routes.hpp"

namespace orrery {

// Fat trees and rails: groups of nodes within groups, each with a trunk to the tier above. REQUIRES: the
// fabric's kind is one of them.
std::unique_ptr<FabricRoutes> make_clos(const Cluster& cluster, bool bundled);
// Shortest paths only: at most one cable in the group of the sender, one between the groups, one in the group
// of the receiver.
std::unique_ptr<FabricRoutes> make_dragonfly(const Cluster& cluster);
// Shortest paths, one dimension after the other; the paths are the orders of the dimensions, and both ways
// round where they are equally long.
std::unique_ptr<FabricRoutes> make_torus(const Cluster& cluster);

}  // namespace orrery

#pragma once
// Communication laid around what is slow or lost: other network cards of the same node, other orders of
// rings.

#include <span>

#include "simulator/job.hpp"
#include "topology/cluster.hpp"

namespace orrery {

// For the faults as they are, whenever they begin or end; ranks are devices. A GPU whose network card (or its
// cable, leaf switch or trunk) is slow goes through the card of the GPU of its node that leaves it most, all
// its users counted. Where NVLinks are cables between GPUs, rings take the order whose slowest edge is
// fastest. Empty where nothing is gained. What a lost GPU did nobody does in its stead: see regroup.
Rerouting route_around(const Router& router, std::span<const Fault> faults);

}  // namespace orrery

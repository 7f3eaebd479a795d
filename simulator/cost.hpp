#pragma once
// What an instruction's kernel takes, as simulated time.

#include "base/sim_time.hpp"
#include "model/program.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// Work of one launch while nothing disturbs it, at the clocks of long runs (simulator/kernel_model.hpp). A
// kernel without a shape takes the longest of arithmetic / reachable peak, bytes / reachable bandwidth and
// their like. THROWS Error(kInfeasible) when the GPU has no arithmetic of the kernel's type.
SimTime kernel_time(const Kernel& kernel, const GpuType& gpu, const Profile& profile);

}  // namespace orrery

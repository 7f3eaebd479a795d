#pragma once
// What an instruction's kernel takes, as simulated time.

#include <cstdint>
#include <string_view>

#include "base/sim_time.hpp"
#include "model/program.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// Work of one launch while nothing disturbs it. Where the Profile has measured it, that: the kernel of this
// label and shape, else the fit of its label, else a kernel of this shape, else the fit of its kind.
// Otherwise by the model of simulator/kernel_model.hpp, at the clocks of long runs: a kernel without a shape
// takes the longest of arithmetic / reachable peak, bytes / reachable bandwidth and their like. What the
// runtime adds to each instruction is in it, except where the Program itself says how long a kernel takes.
// THROWS Error(kInfeasible) when the GPU has no arithmetic of the kernel's type.
SimTime kernel_time(const Kernel& kernel, std::string_view label, const GpuType& gpu, const Profile& profile);

// The same of a kernel whose label doesn't matter, as of GPUs, whose Profiles have no measured kernels.
SimTime kernel_time(const Kernel& kernel, const GpuType& gpu, const Profile& profile);

// Which of these it is, and the deviation of ln(measured / said) that a calibration found; 0 for the model.
enum class CostOrigin : std::uint8_t { kProgram, kMeasured, kMeasuredShape, kFit, kModel };
struct KernelCost {
  double seconds = 0;  // Without what the runtime adds.
  CostOrigin origin = CostOrigin::kModel;
  double sigma = 0;
};
KernelCost kernel_cost(const Kernel& kernel, std::string_view label, const GpuType& gpu,
                       const Profile& profile);

}  // namespace orrery

#include "simulator/cost.hpp"

#include "simulator/kernel_model.hpp"

namespace orrery {

SimTime kernel_time(const Kernel& kernel, const GpuType& gpu, const Profile& profile) {
  if (kernel.kind == KernelKind::kFixed) return kernel.fixed;
  return from_seconds(kernel_seconds(kernel, gpu, profile));
}

}  // namespace orrery

#include "simulator/cost.hpp"

#include <algorithm>

#include "simulator/kernel_model.hpp"

namespace orrery {
namespace {

bool same_shape(const Kernel& kernel, const MeasuredKernel& measured) {
  return measured.kind == to_string(kernel.kind) && measured.dtype == kernel.dtype &&
         measured.m == kernel.m && measured.n == kernel.n && measured.k == kernel.k &&
         measured.batch == kernel.batch && measured.flops == kernel.flops &&
         measured.read_bytes == kernel.read_bytes && measured.written_bytes == kernel.written_bytes;
}

double fitted_seconds(const Kernel& kernel, const KernelFit& fit) {
  const double bytes = static_cast<double>(kernel.read_bytes) + static_cast<double>(kernel.written_bytes);
  return fit.base_s + (fit.flops_per_s > 0 ? kernel.flops / fit.flops_per_s : 0) +
         (fit.bytes_per_s > 0 ? bytes / fit.bytes_per_s : 0);
}

}  // namespace

KernelCost kernel_cost(const Kernel& kernel, std::string_view label, const GpuType& gpu,
                       const Profile& profile) {
  if (kernel.kind == KernelKind::kFixed) return {kernel.fixed.seconds(), CostOrigin::kProgram, 0};
  const MeasuredKernel* of_shape = nullptr;
  for (const MeasuredKernel& measured : profile.kernels) {
    if (!same_shape(kernel, measured)) continue;
    if (measured.label == label) return {measured.seconds, CostOrigin::kMeasured, measured.sigma};
    if (of_shape == nullptr) of_shape = &measured;
  }
  if (of_shape != nullptr) return {of_shape->seconds, CostOrigin::kMeasuredShape, of_shape->sigma};
  const auto fit = std::ranges::find(profile.kernel_fits, to_string(kernel.kind), &KernelFit::kind);
  if (fit != profile.kernel_fits.end()) return {fitted_seconds(kernel, *fit), CostOrigin::kFit, fit->sigma};
  return {kernel_seconds(kernel, gpu, profile), CostOrigin::kModel, 0};
}

SimTime kernel_time(const Kernel& kernel, std::string_view label, const GpuType& gpu,
                    const Profile& profile) {
  if (kernel.kind == KernelKind::kFixed) return kernel.fixed;
  return from_seconds(kernel_cost(kernel, label, gpu, profile).seconds + profile.instruction_s);
}

SimTime kernel_time(const Kernel& kernel, const GpuType& gpu, const Profile& profile) {
  return kernel_time(kernel, "", gpu, profile);
}

}  // namespace orrery

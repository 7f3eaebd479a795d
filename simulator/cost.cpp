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

// Another kernel of one's shape (an addition for a norm) is a worse guide than one's own other shapes.
bool has_fit(const Profile& profile, std::string_view label) {
  return std::ranges::any_of(profile.kernel_fits,
                             [&](const KernelFit& fit) { return !fit.label.empty() && fit.label == label; });
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
  if (of_shape != nullptr && !has_fit(profile, label))
    return {of_shape->seconds, CostOrigin::kMeasuredShape, of_shape->sigma};
  const KernelFit* of_kind = nullptr;
  for (const KernelFit& fit : profile.kernel_fits) {
    if (fit.kind != to_string(kernel.kind)) continue;
    if (!fit.label.empty() && fit.label == label)
      return {fitted_seconds(kernel, fit), CostOrigin::kFit, fit.sigma};
    if (fit.label.empty() && of_kind == nullptr) of_kind = &fit;
  }
  if (of_kind != nullptr) return {fitted_seconds(kernel, *of_kind), CostOrigin::kFit, of_kind->sigma};
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

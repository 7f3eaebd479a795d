#include "calibration/host_fit_report.hpp"

#include <fmt/format.h>

#include "base/units.hpp"

namespace orrery {
namespace {

constexpr std::size_t kListed = 8;

std::string seconds(double s) { return format_time(from_seconds(s)); }

std::string rate(double per_s, const char* unit) {
  return per_s > 0 ? fmt::format("{:.3g} {}", 1e-9 * per_s, unit) : "-";
}

std::string transfer_line(const std::string& what, double base_s, double seconds_per_byte) {
  return fmt::format("  {:<24}{:>12}{:>16}\n", what, seconds(base_s),
                     rate(seconds_per_byte > 0 ? 1 / seconds_per_byte : 0, "GB/s"));
}

}  // namespace

std::string to_table(const HostFit& fit, const std::string& file) {
  const Profile& profile = fit.profile;
  std::string text =
      fmt::format("{}: {} kernels of {} shapes timed\n\n", file, profile.name, profile.kernels.size());
  text += fmt::format("  {:<24}{:>12}{:>16}{:>16}\n", "kernels", "each", "arithmetic", "memory");
  for (const KernelFit& kernel : profile.kernel_fits) {
    if (!kernel.label.empty()) continue;
    text += fmt::format("  {:<24}{:>12}{:>16}{:>16}\n", kernel.kind, seconds(kernel.base_s),
                        rate(kernel.flops_per_s, "GFLOP/s"), rate(kernel.bytes_per_s, "GB/s"));
  }
  text += fmt::format("\n  {:<24}{:>12}{:>16}\n", "transfers", "each", "bandwidth");
  if (profile.message_fit)
    text += transfer_line("message", profile.message_fit->base_s, profile.message_fit->seconds_per_byte);
  for (const CollectiveFit& collective : profile.collective_fits) {
    text += transfer_line(fmt::format("{} of {}", collective.kind, collective.ranks), collective.base_s,
                          collective.seconds_per_byte);
  }
  text += fmt::format("\n  {:<24}{:>12}\n", "an instruction costs", seconds(profile.instruction_s));
  text += fmt::format("  {:<24}{:>12.2f}\n", "all cores together", profile.cores_together);
  text += fmt::format("\n  fits where they weren't fitted{:>20}{:>10}\n", "median error", "shapes");
  for (std::size_t i = 0; i < std::min(kListed, fit.errors.size()); ++i) {
    const FitError& error = fit.errors[i];
    text += fmt::format("  {:<36}{:>12.1f} %{:>10}\n", error.what, 100 * error.median, error.points);
  }
  if (fit.errors.size() > kListed)
    text += fmt::format("  and {} smaller ones\n", fit.errors.size() - kListed);
  return text;
}

}  // namespace orrery

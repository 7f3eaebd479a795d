#include "topology/link_rates.hpp"

namespace orrery {
namespace {

constexpr double kGiga = 1e9;

// Intel models: Skylake, Sapphire Rapids and Emerald Rapids are the first of their kind.
double intel_gb_per_s(std::int32_t model) {
  if (model >= 0xCF) return 40;
  if (model >= 0x8F) return 22;
  if (model >= 0x55) return 10;
  return 6;
}

}  // namespace

double pcie_bytes_per_s(double gigatransfers_per_s, std::int32_t lanes) {
  // Per lane in 100 Mb/s, so that sixteen lanes of generation 3 give 60 · 16 / 80 = 12 GB/s.
  constexpr struct {
    double gigatransfers, rate;
  } kGenerations[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
  double rate = 60;
  for (const auto& generation : kGenerations)
    if (generation.gigatransfers == gigatransfers_per_s) rate = generation.rate;
  return rate * (lanes > 0 ? lanes : 16) / 80 * kGiga;
}

double pcie_bytes_per_s(const PciDevice& device) {
  return pcie_bytes_per_s(device.gigatransfers_per_s, device.lanes);
}

double nvlink_bytes_per_s(std::int32_t compute_capability) {
  if (compute_capability >= 100) return 40.1 * kGiga;
  if (compute_capability >= 90) return 20.6 * kGiga;
  if (compute_capability == 86 || compute_capability == 89) return 12 * kGiga;
  if (compute_capability >= 60 && compute_capability < 70) return 18 * kGiga;
  return 20 * kGiga;
}

double cpu_interconnect_bytes_per_s(const HostCpu& cpu) {
  if (cpu.architecture == "arm64") return 6 * kGiga;
  if (cpu.architecture == "ppc64") return 32 * kGiga;
  if (cpu.vendor == "AuthenticAMD") return 16 * kGiga;
  if (cpu.vendor == "GenuineIntel") return intel_gb_per_s(cpu.model) * kGiga;
  if (cpu.vendor == "CentaurHauls" || cpu.vendor == "  Shanghai  ")  // Zhaoxin; Yongfeng is 7, 0x5B.
    return (cpu.family == 7 && cpu.model == 0x5B ? 9 : 6) * kGiga;
  return 0;
}

}  // namespace orrery

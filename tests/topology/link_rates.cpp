#include "topology/link_rates.hpp"

#include <catch2/catch.hpp>

using namespace orrery;

TEST_CASE("PCIe rates are NCCL's", "[topology]") {
  CHECK(pcie_bytes_per_s(8, 16) == 12e9);  // 60 · 16 / 80.
  CHECK(pcie_bytes_per_s(16, 16) == 24e9);
  CHECK(pcie_bytes_per_s(32, 16) == 48e9);
  CHECK(pcie_bytes_per_s(64, 16) == 96e9);
  CHECK(pcie_bytes_per_s(2.5, 1) == Approx(0.1875e9));  // 15 / 80: what a VM's bridge claims.
  CHECK(pcie_bytes_per_s(5, 16) == 6e9);
  CHECK(pcie_bytes_per_s(0, 0) == 12e9);  // Not known: generation 3, 16 lanes.
  CHECK(pcie_bytes_per_s(7, 8) == 6e9);   // No generation has 7 GT/s.
}

TEST_CASE("NVLink rates go by compute capability", "[topology]") {
  CHECK(nvlink_bytes_per_s(60) == 18e9);
  CHECK(nvlink_bytes_per_s(70) == 20e9);
  CHECK(12 * nvlink_bytes_per_s(80) == 240e9);
  CHECK(nvlink_bytes_per_s(86) == 12e9);
  CHECK(nvlink_bytes_per_s(89) == 12e9);
  CHECK(18 * nvlink_bytes_per_s(90) == Approx(370.8e9));
  CHECK(18 * nvlink_bytes_per_s(103) == Approx(721.8e9));
  CHECK(nvlink_bytes_per_s(0) == 20e9);
}

TEST_CASE("sockets are joined at their maker's rate", "[topology]") {
  const auto rate = [](const char* vendor, std::int32_t family, std::int32_t model) {
    HostCpu cpu;
    cpu.architecture = "x86_64";
    cpu.vendor = vendor;
    cpu.family = family;
    cpu.model = model;
    return cpu_interconnect_bytes_per_s(cpu);
  };
  CHECK(rate("AuthenticAMD", 143, 49) == 16e9);
  CHECK(rate("GenuineIntel", 6, 79) == 6e9);    // Broadwell.
  CHECK(rate("GenuineIntel", 6, 85) == 10e9);   // Skylake.
  CHECK(rate("GenuineIntel", 6, 143) == 22e9);  // Sapphire Rapids.
  CHECK(rate("GenuineIntel", 6, 207) == 40e9);  // Emerald Rapids.
  CHECK(rate("  Shanghai  ", 7, 0x5B) == 9e9);
  CHECK(rate("", 0, 0) == 0);
  HostCpu arm;
  arm.architecture = "arm64";
  CHECK(cpu_interconnect_bytes_per_s(arm) == 6e9);
}

#pragma once
// What one link carries, per direction, as NCCL counts it when it prices routes: below the datasheet, because
// protocol overhead is taken off. In one place, so that everything that reads a machine agrees. The figures
// are those of NCCL 2.30's topology code (graph/topo.h, graph/topo.cc).

#include <cstdint>

#include "topology/import/host.hpp"

namespace orrery {

// Inside one device, and between a CPU and a network card that stands straight under it.
inline constexpr double kLocalBytesPerS = 5000e9;
// What a network port counts as when nobody knows its rate: 10 Gb/s.
inline constexpr double kUnknownPortBytesPerS = 1.25e9;

// 8 GT/s on 16 lanes is 12e9. A rate that is no PCIe generation's (0 too) counts as 8 GT/s, 0 lanes as 16.
double pcie_bytes_per_s(double gigatransfers_per_s, std::int32_t lanes);
double pcie_bytes_per_s(const PciDevice& device);

// One NVLink of a GPU of this compute capability (90 for 9.0): 20.6e9 for Hopper. 0, not known, gives 20e9.
double nvlink_bytes_per_s(std::int32_t compute_capability);

// Between two sockets (or NUMA nodes) of this kind; 0 when architecture or vendor say nothing about it, where
// NCCL takes kLocalBytesPerS.
double cpu_interconnect_bytes_per_s(const HostCpu& cpu);

}  // namespace orrery

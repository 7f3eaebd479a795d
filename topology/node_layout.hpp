#pragma once
// The one shape that all nodes of the catalogue and of inline descriptions share: GPUs on an NVSwitch, or
// joined by NVLink cables; GPUs and NICs under PCIe switches, PCIe switches under CPUs. Rates are those that
// NCCL works with.

#include <cstdint>
#include <string>
#include <vector>

#include "topology/cluster.hpp"

namespace orrery {

// One-way latencies, chosen so that whole paths have the hardware latency of NCCL's tuning table for its
// lowest-latency protocol (NCCL 2.30 tuning model, ring LL): NVLink GPU to GPU 0.6 us through two hops, PCIe
// GPU to GPU 1.0 us through the four segments up to a CPU and back, network GPU to GPU 2.7 us = four PCIe
// segments and two NICs. Fabric::hop_latency_s comes on top.
inline constexpr double kNvLinkHopLatency = 0.3e-6;
inline constexpr double kPcieHopLatency = 0.25e-6;
inline constexpr double kCpuInterconnectLatency = 0.25e-6;
inline constexpr double kNicLatency = (2.7e-6 - 4 * kPcieHopLatency) / 2;

// NVLink cables from one GPU to another.
struct DirectNvLinks {
  std::int32_t a = 0, b = 0;
  std::int32_t cables = 1;
};
// The hybrid cube mesh of DGX-1 with V100: six cables per GPU, to four of the seven others.
std::vector<DirectNvLinks> hybrid_cube_mesh();
// GPUs 0 and 1, 2 and 3, … joined by bridges.
std::vector<DirectNvLinks> bridged_pairs(std::int32_t gpus, std::int32_t cables);

struct NodeLayout {
  std::string name;
  std::int32_t gpus = 8;
  std::int32_t nics = 8;
  std::int32_t pcie_switches = 8;  // GPUs and NICs are spread evenly over them, in index order.
  std::int32_t cpus = 2;           // PCIe switches likewise.
  double nvlink_bytes_per_s = 0;   // Per GPU and direction; 0: no NVLink.
  double pcie_bytes_per_s = 0;
  double cpu_interconnect_bytes_per_s = 0;
  double nic_bytes_per_s = 0;
  std::string source = {};
  std::int32_t cpus_per_board = 0;  // CPUs that are joined to each other, in index order; 0: all of them.
  // Instead of an NVSwitch, each cable of this rate per direction.
  std::vector<DirectNvLinks> direct_nvlinks = {};
  double direct_nvlink_bytes_per_s = 0;
};

NodeType build_node(const NodeLayout& layout, const GpuType& gpu);

}  // namespace orrery

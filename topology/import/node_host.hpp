#pragma once
// A node type of the catalogue as the hosts that its tools would describe, so that NCCL's search runs on it.
// What a node type doesn't say is made up so that NCCL counts the same rates: bus ids in the order of
// devices, the CPU generation that has the rate between sockets, PCIe generations and lanes.

#include <cstdint>
#include <vector>

#include "topology/cluster.hpp"
#include "topology/import/host.hpp"

namespace orrery {

// 90 for Hopper; 0: no GPU of NVIDIA's, or not known.
std::int32_t compute_capability(const GpuType& gpu);

// One host, but for racks whose boards share NVLink only. REQUIRES: PCIe is a tree under the CPUs.
std::vector<Host> hosts_of(const NodeType& node);

}  // namespace orrery

#pragma once
// The parts that the catalogue is put together from.

#include <string>
#include <string_view>
#include <vector>

#include "topology/cluster.hpp"

namespace orrery {

struct NamedGpu {
  std::string name;
  std::vector<std::string> aliases;
  GpuType type;
};
const std::vector<NamedGpu>& gpu_table();
const GpuType& known_gpu(std::string_view name);  // REQUIRES: a name of the table.

struct NamedNode {
  std::vector<std::string> names;  // The first is listed.
  NodeType type;
};
std::vector<NamedNode> own_nodes();    // Makers' systems, and assumed servers.
std::vector<NamedNode> cloud_nodes();  // Shapes that clouds rent out.

// "NVIDIA_H100-SXM" and "nvidia-h100-sxm" are one name.
std::string folded_name(std::string_view name);

// Link rates that NCCL works with (2.30.7, graph/topo), per link and direction.
inline constexpr double kNcclNvLink70 = 20e9, kNcclNvLink80 = 20e9, kNcclNvLink90 = 20.6e9,
                        kNcclNvLink100 = 40.1e9;
inline constexpr double kNcclPcieGen3 = 12e9, kNcclPcieGen4 = 24e9, kNcclPcieGen5 = 48e9;  // x16.
inline constexpr double kNcclAmdSocket = 16e9, kNcclBroadwell = 6e9;
inline constexpr double kNcclSapphireRapids = 22e9, kNcclEmeraldRapids = 40e9;

// NCCL prices a NIC at Mb/s / 8000 GB/s.
constexpr double nic_rate(double gigabits_per_s) { return gigabits_per_s * 1e3 / 8000 * 1e9; }

}  // namespace orrery

#include "calibration/collective_machines.hpp"

#include <array>

#include "topology/node_layout.hpp"

namespace orrery {
namespace {

// Rates that NCCL works with (2.30, topology model): per NVLink, PCIe x16, between CPUs; GB/s.
constexpr double kNvLink2 = 20, kNvLink3 = 20, kNvLink4 = 20.6, kNvLink5 = 40.1;
constexpr double kGen3 = 12, kGen4 = 24, kGen5 = 48;
constexpr double kSockets = 16;

// What a table's words stand for.
struct Entry {
  std::string_view gpu;           // The name starts with this.
  std::string_view interconnect;  // And the description contains this.
  Architecture architecture = Architecture::kUnknown;
  std::int32_t gpus = 8;
  double nvlink = 0;  // GB/s per GPU through a switch; 0: see `pair_links`.
  double pcie = 0;    // GB/s.
  std::int32_t nics = 0;
  double nic = 0;  // GB/s.
  enum class Mesh : std::uint8_t { kNone, kCube, kPairs } mesh = Mesh::kNone;
  double pair = 0;  // GB/s between any two GPUs of a mesh of pairs.
};
using Mesh = Entry::Mesh;
using enum Architecture;

// The first that fits. NIC counts and rates as the tables say; A3 High (1 Tb/s per node) has four data NICs
// of 200 Gb/s beside one for the host, A3 Mega eight of 200 Gb/s, A3 Ultra eight of 400 Gb/s (Google Cloud,
// GPU network bandwidth). Four V100 SXM2 of one board (Jean Zay) join every pair by two links, four GH200
// every pair by six. An eight-GPU V100 server that isn't named is taken for a DGX-1, an A100 one for a DGX
// A100.
constexpr std::array kMachines{
    Entry{"GB200", "NVL72", kBlackwell, 72, 18 * kNvLink5, kGen5},
    Entry{"B200", "one 8-GPU host", kBlackwell, 8, 18 * kNvLink5, kGen5},
    Entry{"GH200", "all-to-all", kHopper, 4, 0, kGen5, 0, 0, Mesh::kPairs, 6 * kNvLink4},
    Entry{"H200", "A3 Ultra", kHopper, 8, 18 * kNvLink4, kGen5, 8, 50},
    Entry{"H100", "A3 High", kHopper, 8, 18 * kNvLink4, kGen5, 4, 25},
    Entry{"H100", "A3 Mega", kHopper, 8, 18 * kNvLink4, kGen5, 8, 25},
    Entry{"H100", "8x400 Gb/s", kHopper, 8, 18 * kNvLink4, kGen5, 8, 50},
    Entry{"H100", "NVLink4/NVSwitch", kHopper, 8, 18 * kNvLink4, kGen5},
    Entry{"A100", "4x200 Gb/s", kAmpere, 8, 12 * kNvLink3, kGen4, 4, 25},
    Entry{"A100", "8x200 Gb/s", kAmpere, 8, 12 * kNvLink3, kGen4, 8, 25},
    Entry{"A100", "4x100 Gb/s", kAmpere, 8, 12 * kNvLink3, kGen4, 4, 12.5},
    Entry{"A100", "a2-highgpu", kAmpere, 8, 12 * kNvLink3, kGen4},
    Entry{"A100", "NVLink3/NVSwitch", kAmpere, 8, 12 * kNvLink3, kGen4},
    Entry{"A100", "single node NVLink", kAmpere, 8, 12 * kNvLink3, kGen4},
    Entry{"V100", "4x100 Gb/s", kVolta, 4, 0, kGen3, 4, 12.5, Mesh::kPairs, 2 * kNvLink2},
    Entry{"V100", "single node NVLink", kVolta, 8, 0, kGen3, 0, 0, Mesh::kCube},
    Entry{"V100", "100 Gb/s IB per node", kVolta, 8, 0, kGen3, 1, 12.5, Mesh::kCube},
};

NodeType build(const Entry& entry, std::string_view gpu_name) {
  GpuType gpu;
  gpu.name = gpu_name;
  gpu.architecture = entry.architecture;
  NodeLayout layout;
  layout.name = gpu_name;
  layout.gpus = entry.gpus;
  layout.nics = entry.nics;
  layout.pcie_switches = entry.gpus <= 8 ? 4 : 8;
  layout.nvlink_bytes_per_s = entry.nvlink * 1e9;
  layout.pcie_bytes_per_s = entry.pcie * 1e9;
  layout.cpu_interconnect_bytes_per_s = kSockets * 1e9;
  layout.nic_bytes_per_s = entry.nic * 1e9;
  NodeType node = build_node(layout, gpu);
  constexpr double kLatency = 0.6e-6;  // Unused by collectives; as through a switch.
  const auto join = [&](std::int32_t a, std::int32_t b, double gb_per_s) {
    node.links.push_back({"nvlink", a, b, LinkKind::kNvLink, gb_per_s * 1e9, kLatency});
  };
  if (entry.mesh == Mesh::kCube)
    for (const DirectNvLinks& link : hybrid_cube_mesh()) join(link.a, link.b, link.cables * kNvLink2);
  if (entry.mesh == Mesh::kPairs)
    for (std::int32_t a = 0; a < entry.gpus; ++a)
      for (std::int32_t b = a + 1; b < entry.gpus; ++b) join(a, b, entry.pair);
  return node;
}

}  // namespace

MachineAnswer published_machine(std::string_view gpu, std::string_view interconnect) {
  if (gpu.empty()) return {std::nullopt, {"GPU not stated"}};
  if (gpu.starts_with("MI")) return {std::nullopt, {"RCCL, not NCCL"}};
  for (const Entry& entry : kMachines)
    if (gpu.starts_with(entry.gpu) && interconnect.find(entry.interconnect) != std::string_view::npos)
      return {PublishedMachine{build(entry, gpu), entry.gpus == 72}, {}};
  return {std::nullopt, {"links between GPUs not stated or not known here"}};
}

}  // namespace orrery

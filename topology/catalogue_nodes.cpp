// Makers' systems and assumed servers. "NCCL topology model" is the table of link rates in
// catalogue_tables.hpp.

#include <fmt/format.h>

#include <utility>

#include "topology/catalogue_tables.hpp"
#include "topology/node_layout.hpp"

namespace orrery {
namespace {

std::vector<NamedNode> nvswitch_nodes() {
  const std::string rates = "; link rates: NCCL topology model";
  const auto node = [&](std::vector<std::string> names, const char* gpu_name, NodeLayout layout) {
    layout.source += rates;
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  const std::string dgx_a100 =
      "NVIDIA DGX A100 user guide: 12 NVLink 3 per GPU, 8 HDR NICs, 2 GPUs per switch";
  return {
      node({"dgx-v100", "dgx-1", "dgx-1v"}, "v100-sxm-32gb",
           {"DGX-1-V100", 8, 4, 4, 2, 6 * kNcclNvLink70, kNcclPcieGen3, kNcclBroadwell, nic_rate(100),
            "NVIDIA DGX-1 system architecture, 2017: 6 NVLink 2 per GPU, 4 EDR NICs. Simplified: the hybrid "
            "cube mesh is drawn as a switch, which is right for rings over all 8 GPUs (they use all links) "
            "and too fast for smaller groups and for messages; dgx-v100-mesh has the cables"}),
      node({"dgx-a100", "dgx-a100-80", "hgx-a100"}, "a100-sxm-80gb",
           {"DGX-A100", 8, 8, 4, 2, 12 * kNcclNvLink80, kNcclPcieGen4, kNcclAmdSocket, nic_rate(200),
            dgx_a100}),
      node({"dgx-a100-40"}, "a100-sxm-40gb",
           {"DGX-A100-40GB", 8, 8, 4, 2, 12 * kNcclNvLink80, kNcclPcieGen4, kNcclAmdSocket, nic_rate(200),
            dgx_a100}),
      node({"hgx-a800"}, "a800-sxm-80gb",
           {"HGX-A800", 8, 8, 4, 2, 8 * kNcclNvLink80, kNcclPcieGen4, kNcclAmdSocket, nic_rate(200),
            "as DGX-A100 with 8 NVLinks per GPU"}),
      node({"dgx-h100", "hgx-h100"}, "h100-sxm",
           {"DGX-H100", 8, 8, 8, 2, 18 * kNcclNvLink90, kNcclPcieGen5, kNcclSapphireRapids, nic_rate(400),
            "NVIDIA DGX H100 user guide: 18 NVLink 4 per GPU, 8 NDR ports, one per GPU"}),
      node({"hgx-h800", "dgx-h800"}, "h800-sxm",
           {"HGX-H800", 8, 8, 8, 2, 8 * kNcclNvLink90, kNcclPcieGen5, kNcclSapphireRapids, nic_rate(400),
            "as DGX-H100 with 8 NVLinks per GPU"}),
      node({"dgx-h200", "hgx-h200"}, "h200-sxm",
           {"DGX-H200", 8, 8, 8, 2, 18 * kNcclNvLink90, kNcclPcieGen5, kNcclSapphireRapids, nic_rate(400),
            "NVIDIA DGX H200 user guide: as DGX H100; 18 NVLinks seen on such a node"}),
      node({"dgx-b200", "hgx-b200"}, "b200-sxm",
           {"DGX-B200", 8, 8, 8, 2, 18 * kNcclNvLink100, kNcclPcieGen5, kNcclEmeraldRapids, nic_rate(400),
            "NVIDIA DGX B200 datasheet, 2024: 18 NVLink 5 per GPU, 8 NDR ports"}),
      node({"dgx-b300", "hgx-b300"}, "b300-sxm",
           {"DGX-B300", 8, 8, 8, 2, 18 * kNcclNvLink100, 2 * kNcclPcieGen5, kNcclEmeraldRapids, nic_rate(800),
            "NVIDIA DGX B300 datasheet, 2025: as DGX B200 with 8 XDR ports on PCIe 6"}),
  };
}

// GPUs that are joined to some others only; the rest of the traffic goes over PCIe. No GPU forwards what is
// meant for others.
std::vector<NamedNode> meshed_nodes() {
  const auto node = [](std::vector<std::string> names, const char* gpu_name, NodeLayout layout,
                       std::vector<DirectNvLinks> cables, double cable_bytes_per_s) {
    layout.source += "; link rates: NCCL topology model";
    layout.direct_nvlinks = std::move(cables);
    layout.direct_nvlink_bytes_per_s = cable_bytes_per_s;
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  return {
      node({"dgx-v100-mesh", "dgx-1-mesh", "dgx-1v-mesh"}, "v100-sxm-32gb",
           {"DGX-1-V100-mesh", 8, 4, 4, 2, 0, kNcclPcieGen3, kNcclBroadwell, nic_rate(100),
            "NVIDIA DGX-1 system architecture, 2017, and its nvidia-smi topo -m: the hybrid cube mesh cable "
            "by "
            "cable, 6 NVLink 2 per GPU to 4 others, the other 3 over PCIe and QPI; 4 EDR NICs"},
           hybrid_cube_mesh(), kNcclNvLink70),
      node({"pcie-a100-bridged"}, "a100-pcie-80gb",
           {"PCIe-A100-bridged", 8, 4, 4, 2, 0, kNcclPcieGen4, kNcclAmdSocket, nic_rate(200),
            "assumed server: 8 GPUs in pairs under 4 PCIe switches, a NIC each; each pair joined by 3 "
            "bridges of "
            "4 NVLink 3 (NVIDIA A100 datasheet, 2021: 600 GB/s both ways)"},
           bridged_pairs(8, 12), kNcclNvLink80),
      node({"pcie-h100-nvl"}, "h100-nvl",
           {"PCIe-H100-NVL", 8, 4, 4, 2, 0, kNcclPcieGen5, kNcclSapphireRapids, nic_rate(400),
            "assumed server: 8 GPUs in pairs under 4 PCIe switches, a NIC each; each pair joined by 3 "
            "bridges of "
            "4 NVLink 4 (NVIDIA H100 datasheet, 2024: NVL, 600 GB/s both ways)"},
           bridged_pairs(8, 12), kNcclNvLink90),
  };
}

// A tray has 4 GPUs and 2 CPUs; 18 trays whose GPUs share one NVLink domain are a rack. As a node of its own
// a tray is joined to the others by Cluster::nodes_per_nvlink_domain. A GPU hangs on its CPU by NVLink-C2C at
// 450 GB/s and direction; it is drawn here at the NIC's PCIe rate, which is too slow for offloading to the
// host.
std::vector<NamedNode> rack_nodes() {
  const auto node = [](std::vector<std::string> names, const char* gpu_name, const char* label,
                       std::int32_t trays, double pcie, double gigabits, std::string source) {
    NodeLayout layout{
        label, 4 * trays,          4 * trays,          4 * trays,        2 * trays, 18 * kNcclNvLink100,
        pcie,  kNcclEmeraldRapids, nic_rate(gigabits), std::move(source)};
    layout.cpus_per_board = 2;
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  const std::string gb200 =
      "NVIDIA GB200 NVL72 and DGX GB200 user guides: 18 NVLink 5 per GPU, 4 NDR ports per tray; host links "
      "drawn as PCIe; link rates: NCCL topology model";
  const std::string gb300 =
      "NVIDIA GB300 NVL72 datasheet, 2025: 18 NVLink 5 per GPU, 4 XDR ports per tray on PCIe 6; host links "
      "drawn as PCIe; link rates: NCCL topology model";
  return {
      node({"gb200-nvl72", "dgx-gb200"}, "gb200", "GB200-NVL72", 18, kNcclPcieGen5, 400, gb200),
      node({"gb300-nvl72", "dgx-gb300"}, "gb300", "GB300-NVL72", 18, 2 * kNcclPcieGen5, 800, gb300),
      node({"gb200-tray"}, "gb200", "GB200-tray", 1, kNcclPcieGen5, 400, gb200),
      node({"gb300-tray"}, "gb300", "GB300-tray", 1, 2 * kNcclPcieGen5, 800, gb300),
  };
}

// Infinity Fabric joins each pair of the 8 GPUs by one link of 64 GB/s a direction (AMD MI300X platform
// datasheet, 2023); a ring over all of them uses all 7. Drawn as a switch with those, less a fifth for
// protocol as on NVLink.
std::vector<NamedNode> amd_nodes() {
  const auto node = [](std::vector<std::string> names, const char* gpu_name, const char* label,
                       double link_rate) {
    const NodeLayout layout{
        label,
        8,
        8,
        8,
        2,
        7 * link_rate * 0.8,
        kNcclPcieGen5,
        kNcclAmdSocket,
        nic_rate(400),
        fmt::format(
            "AMD Instinct platform datasheet: 7 Infinity Fabric links of {} GB/s per GPU{}, drawn as a "
            "switch; 8 NICs of 400 Gb/s assumed",
            link_rate / 1e9, link_rate > 64e9 ? " (unverified)" : "")};
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  return {node({"mi300x-8"}, "mi300x", "MI300X-8", 64e9), node({"mi325x-8"}, "mi325x", "MI325X-8", 64e9),
          node({"mi355x-8"}, "mi355x", "MI355X-8", 76.8e9)};
}

std::vector<NamedNode> pcie_nodes() {
  const std::string source =
      "assumed server: 8 GPUs in pairs under 4 PCIe switches, a NIC each; link rates: NCCL "
      "topology model";
  const auto node = [&](std::vector<std::string> names, const char* gpu_name, const char* label, double pcie,
                        double socket, double gigabits) {
    const NodeLayout layout{label, 8, 4, 4, 2, 0, pcie, socket, nic_rate(gigabits), source};
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  return {
      node({"pcie-a100", "a100-pcie-8"}, "a100-pcie-80gb", "PCIe-A100", kNcclPcieGen4, kNcclAmdSocket, 200),
      node({"pcie-h100", "h100-pcie-8"}, "h100-pcie", "PCIe-H100", kNcclPcieGen5, kNcclSapphireRapids, 400),
      node({"pcie-l40s", "l40s-8"}, "l40s", "PCIe-L40S", kNcclPcieGen4, kNcclSapphireRapids, 200),
      node({"pcie-4090", "rtx-4090-8"}, "rtx-4090", "PCIe-RTX-4090", kNcclPcieGen4, kNcclAmdSocket, 100),
  };
}

}  // namespace

std::vector<NamedNode> own_nodes() {
  std::vector<NamedNode> all;
  for (auto part : {nvswitch_nodes(), meshed_nodes(), rack_nodes(), amd_nodes(), pcie_nodes()})
    for (NamedNode& node : part) all.push_back(std::move(node));
  return all;
}

}  // namespace orrery

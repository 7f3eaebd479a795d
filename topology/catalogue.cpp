// Machines by name. GPU rates are dense peaks: where a datasheet gives the rate with structured sparsity,
// half of it. Memory is what CUDA hands to programs, which is less than the board carries.

#include <algorithm>
#include <cassert>
#include <cctype>
#include <utility>

#include "topology/cluster.hpp"
#include "topology/node_layout.hpp"

namespace orrery {
namespace {

constexpr std::int64_t gib(double count) { return static_cast<std::int64_t>(count * 1073741824.0); }

// Tera-operations per second by type.
struct Peaks {
  double fp32 = 0, tf32 = 0, half = 0, bf16 = 0, fp8 = 0;
};

GpuType gpu(std::string name, const Peaks& peaks, double memory_gib, double terabytes_per_s, double power_w,
            std::string source) {
  GpuType type;
  type.name = std::move(name);
  const auto set = [&](DType dtype, double tera) {
    type.peak_flops_per_s[static_cast<std::size_t>(dtype)] = tera * 1e12;
  };
  set(DType::kFp32, peaks.fp32);
  set(DType::kTf32, peaks.tf32);
  set(DType::kFp16, peaks.half);
  set(DType::kBf16, peaks.bf16);
  set(DType::kFp8, peaks.fp8);
  type.memory_bytes = gib(memory_gib);
  type.memory_bytes_per_s = terabytes_per_s * 1e12;
  type.power_w = power_w;
  type.source = std::move(source);
  return type;
}

struct NamedGpu {
  std::string name;
  std::vector<std::string> aliases;
  GpuType type;
};

// Memory: "total capacity" that PyTorch prints in public out-of-memory reports (cudaMemGetInfo).
const std::vector<NamedGpu>& gpus() {
  static const std::vector<NamedGpu> list = [] {
    const Peaks volta{15.7, 0, 125, 0, 0};
    const Peaks ampere{19.5, 156, 312, 312, 0};
    const Peaks hopper{66.9, 494.7, 989.4, 989.4, 1978.9};
    const std::string a100 = "NVIDIA A100 datasheet, 2021; memory as CUDA reports it";
    const std::string h100 = "NVIDIA H100 architecture white paper, 2022 (dense); memory as CUDA reports it";
    return std::vector<NamedGpu>{
        {"v100-sxm-16gb",
         {"v100-sxm2-16gb"},
         gpu("V100-SXM2-16GB", volta, 15.75, 0.9, 300,
             "NVIDIA V100 datasheet, 2020; memory as CUDA reports it")},
        {"v100-sxm-32gb",
         {"v100-sxm2-32gb", "v100-sxm", "v100"},
         gpu("V100-SXM2-32GB", volta, 31.74, 0.9, 300,
             "NVIDIA V100 datasheet, 2020; memory as CUDA reports it")},
        {"a100-sxm-40gb",
         {"a100-sxm4-40gb", "a100-40gb"},
         gpu("A100-SXM4-40GB", ampere, 39.5, 1.555, 400, a100)},
        {"a100-sxm-80gb",
         {"a100-sxm4-80gb", "a100-80gb", "a100-sxm", "a100"},
         gpu("A100-SXM4-80GB", ampere, 79.25, 2.039, 400, a100)},
        {"a800-sxm-80gb",
         {"a800-sxm4-80gb", "a800"},
         gpu("A800-SXM4-80GB", ampere, 79.25, 2.039, 400, "as A100-SXM4-80GB, with 400 GB/s of NVLink")},
        {"a100-pcie-40gb", {}, gpu("A100-PCIe-40GB", ampere, 39.5, 1.555, 250, a100)},
        {"a100-pcie-80gb", {"a100-pcie"}, gpu("A100-PCIe-80GB", ampere, 79.25, 1.935, 300, a100)},
        {"h100-sxm",
         {"h100-sxm5-80gb", "h100-sxm5", "h100-80gb", "h100"},
         gpu("H100-SXM5-80GB", hopper, 79.11, 3.35, 700, h100)},
        {"h100-pcie",
         {"h100-pcie-80gb"},
         gpu("H100-PCIe-80GB", {51, 378, 756, 756, 1513}, 79.11, 2.0, 350,
             "NVIDIA H100 PCIe datasheet, 2022 (dense); memory as on H100-SXM5-80GB")},
        {"h800-sxm",
         {"h800-sxm5-80gb", "h800"},
         gpu("H800-SXM5-80GB", hopper, 79.11, 3.35, 700, "as H100-SXM5-80GB, with 400 GB/s of NVLink")},
        // nvidia-smi shows 143,771 MiB; CUDA keeps back some 550 MiB, as on the H100 (81,559 MiB, 79.11 GiB).
        {"h200-sxm",
         {"h200-sxm-141gb", "h200-141gb", "h200"},
         gpu("H200-SXM-141GB", hopper, (143771 - 550) / 1024.0, 4.8, 700,
             "NVIDIA H200 datasheet, 2024 (compute as H100 SXM5); memory from nvidia-smi, less CUDA's "
             "share")},
        {"b200-sxm",
         {"b200-sxm-180gb", "b200-180gb", "b200"},
         gpu("B200-SXM-180GB", {75, 1125, 2250, 2250, 4500}, 178.35, 8.0, 1000,
             "NVIDIA HGX B200 and DGX B200 datasheets, 2025 (an eighth of the board, dense); memory as CUDA "
             "reports it")},
        {"l40s",
         {"l40s-48gb"},
         gpu("L40S-48GB", {91.6, 183, 362, 362, 733}, 44.4, 0.864, 350,
             "NVIDIA L40S datasheet, 2023 (dense); memory as CUDA reports it")},
    };
  }();
  return list;
}

// "NVIDIA_H100-SXM" and "nvidia-h100-sxm" are one name.
std::string folded(std::string_view name) {
  std::string key;
  for (const char c : name) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    key += lower == '_' || lower == ' ' ? '-' : lower;
  }
  constexpr std::string_view kMaker = "nvidia-";
  return key.starts_with(kMaker) ? key.substr(kMaker.size()) : key;
}

const GpuType& known_gpu(std::string_view name) {
  const auto entry = std::ranges::find(gpus(), name, &NamedGpu::name);
  assert(entry != gpus().end());
  return entry->type;
}

// ---- Nodes. "NCCL topology model" is the table of link rates that NCCL works with (2.30.7, graph/topo).

constexpr double kNcclNvLink80 = 20e9, kNcclNvLink90 = 20.6e9, kNcclNvLink100 = 40.1e9;  // Per link.
constexpr double kNcclNvLink70 = 20e9;
constexpr double kNcclPcieGen3 = 12e9, kNcclPcieGen4 = 24e9, kNcclPcieGen5 = 48e9;  // x16.
constexpr double kNcclAmdSocket = 16e9, kNcclBroadwell = 6e9;
constexpr double kNcclSapphireRapids = 22e9, kNcclEmeraldRapids = 40e9;

// NCCL prices a NIC at Mb/s / 8000 GB/s.
constexpr double nic(double gigabits_per_s) { return gigabits_per_s * 1e3 / 8000 * 1e9; }

struct NamedNode {
  std::vector<std::string> names;  // The first is listed.
  NodeType type;
};

std::vector<NamedNode> build_nvswitch_nodes() {
  const std::string rates = "; link rates: NCCL topology model";
  const auto node = [&](std::vector<std::string> names, const char* gpu_name, NodeLayout layout) {
    layout.source += rates;
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  const std::string dgx_a100 =
      "NVIDIA DGX A100 user guide: 12 NVLink 3 per GPU, 8 HDR NICs, 2 GPUs per switch";
  return {
      node({"dgx-v100", "dgx-1", "dgx-1v"}, "v100-sxm-32gb",
           {"DGX-1-V100", 8, 4, 4, 2, 6 * kNcclNvLink70, kNcclPcieGen3, kNcclBroadwell, nic(100),
            "NVIDIA DGX-1 system architecture, 2017: 6 NVLink 2 per GPU, 4 EDR NICs. Simplified: the hybrid "
            "cube mesh is drawn as a switch, which is right for rings over all 8 GPUs (they use all links) "
            "and "
            "too fast for smaller groups"}),
      node({"dgx-a100", "dgx-a100-80", "hgx-a100"}, "a100-sxm-80gb",
           {"DGX-A100", 8, 8, 4, 2, 12 * kNcclNvLink80, kNcclPcieGen4, kNcclAmdSocket, nic(200), dgx_a100}),
      node({"dgx-a100-40"}, "a100-sxm-40gb",
           {"DGX-A100-40GB", 8, 8, 4, 2, 12 * kNcclNvLink80, kNcclPcieGen4, kNcclAmdSocket, nic(200),
            dgx_a100}),
      node({"hgx-a800"}, "a800-sxm-80gb",
           {"HGX-A800", 8, 8, 4, 2, 8 * kNcclNvLink80, kNcclPcieGen4, kNcclAmdSocket, nic(200),
            "as DGX-A100 with 8 NVLinks per GPU"}),
      node({"dgx-h100", "hgx-h100"}, "h100-sxm",
           {"DGX-H100", 8, 8, 8, 2, 18 * kNcclNvLink90, kNcclPcieGen5, kNcclSapphireRapids, nic(400),
            "NVIDIA DGX H100 user guide: 18 NVLink 4 per GPU, 8 NDR ports, one per GPU"}),
      node({"hgx-h800", "dgx-h800"}, "h800-sxm",
           {"HGX-H800", 8, 8, 8, 2, 8 * kNcclNvLink90, kNcclPcieGen5, kNcclSapphireRapids, nic(400),
            "as DGX-H100 with 8 NVLinks per GPU"}),
      node({"dgx-h200", "hgx-h200"}, "h200-sxm",
           {"DGX-H200", 8, 8, 8, 2, 18 * kNcclNvLink90, kNcclPcieGen5, kNcclSapphireRapids, nic(400),
            "NVIDIA DGX H200 user guide: as DGX H100; 18 NVLinks seen on such a node"}),
      node({"dgx-b200", "hgx-b200"}, "b200-sxm",
           {"DGX-B200", 8, 8, 8, 2, 18 * kNcclNvLink100, kNcclPcieGen5, kNcclEmeraldRapids, nic(400),
            "NVIDIA DGX B200 datasheet, 2024: 18 NVLink 5 per GPU, 8 NDR ports"}),
  };
}

std::vector<NamedNode> build_pcie_nodes() {
  const std::string source =
      "assumed server: 8 GPUs in pairs under 4 PCIe switches, a NIC each; link rates: NCCL "
      "topology model";
  const auto node = [&](std::vector<std::string> names, const char* gpu_name, const char* label, double pcie,
                        double socket, double gigabits) {
    const NodeLayout layout{label, 8, 4, 4, 2, 0, pcie, socket, nic(gigabits), source};
    return NamedNode{std::move(names), build_node(layout, known_gpu(gpu_name))};
  };
  return {
      node({"pcie-a100", "a100-pcie-8"}, "a100-pcie-80gb", "PCIe-A100", kNcclPcieGen4, kNcclAmdSocket, 200),
      node({"pcie-h100", "h100-pcie-8"}, "h100-pcie", "PCIe-H100", kNcclPcieGen5, kNcclSapphireRapids, 400),
      node({"pcie-l40s", "l40s-8"}, "l40s", "PCIe-L40S", kNcclPcieGen4, kNcclSapphireRapids, 200),
  };
}

const std::vector<NamedNode>& nodes() {
  static const std::vector<NamedNode> list = [] {
    std::vector<NamedNode> all = build_nvswitch_nodes();
    for (NamedNode& node : build_pcie_nodes()) all.push_back(std::move(node));
    return all;
  }();
  return list;
}

}  // namespace

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const NamedGpu& entry : gpus()) names.push_back(entry.name);
  return names;
}

std::optional<GpuType> catalogue_gpu(std::string_view name) {
  const std::string key = folded(name);
  for (const NamedGpu& entry : gpus())
    if (key == entry.name || key == folded(entry.type.name) ||
        std::ranges::find(entry.aliases, key) != entry.aliases.end())
      return entry.type;
  return std::nullopt;
}

std::vector<std::string> catalogue_names() {
  std::vector<std::string> names;
  for (const NamedNode& entry : nodes()) names.push_back(entry.names.front());
  return names;
}

std::optional<NodeType> catalogue_node(std::string_view name) {
  const std::string key = folded(name);
  for (const NamedNode& entry : nodes())
    if (std::ranges::find(entry.names, key) != entry.names.end()) return entry.type;
  return std::nullopt;
}

NodeType make_node(const NodeShape& shape, const GpuType& gpu_type) {
  // What NCCL takes off a datasheet's NVLink rate: 20.6 of 25 GB/s per link on Hopper, 40.1 of 50 on
  // Blackwell, 20 of 25 before (NCCL topology model). PCIe: 48 of 64 GB/s and so on, three quarters in every
  // generation.
  const bool hopper = gpu_type.name.starts_with("H");
  const bool blackwell = gpu_type.name.starts_with("B");
  const double nvlink_share = hopper ? 20.6 / 25 : blackwell ? 40.1 / 50 : 20.0 / 25;
  constexpr double kPcieShare = 0.75;
  NodeLayout layout;
  layout.name = shape.name;
  layout.gpus = shape.gpus;
  layout.nics = shape.nics;
  layout.pcie_switches = shape.nics > 0 ? std::min(shape.gpus, shape.nics) : shape.gpus;
  layout.cpus = layout.pcie_switches > 1 ? 2 : 1;
  layout.nvlink_bytes_per_s = shape.nvlink_bytes_per_s * nvlink_share;
  layout.pcie_bytes_per_s = shape.pcie_bytes_per_s * kPcieShare;
  layout.cpu_interconnect_bytes_per_s = shape.pcie_bytes_per_s >= 60e9 ? kNcclSapphireRapids : kNcclAmdSocket;
  layout.nic_bytes_per_s = shape.nic_bytes_per_s;
  layout.source = "described inline; NVLink and PCIe reduced to the rates of the NCCL topology model";
  return build_node(layout, gpu_type);
}

}  // namespace orrery

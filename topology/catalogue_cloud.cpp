// Shapes that clouds rent out: the makers' boards of catalogue_nodes.cpp with the cloud's own network.

#include <utility>

#include "topology/catalogue_tables.hpp"
#include "topology/node_layout.hpp"

namespace orrery {
namespace {

struct CloudShape {
  std::vector<std::string> names;
  const char* gpu;
  const char* label;
  std::int32_t nics;
  double gigabits;  // Per NIC. Several cards per GPU are one NIC of their sum.
  const char* source;
};

// EFA and TCPX: github.com/stas00/ml-engineering, network, 2025.
constexpr const char* kEfa1 = "AWS EC2 P4: EFA v1, 4 x 100 Gb/s";
constexpr const char* kEfa2 = "AWS EC2 P5: EFA v2, 32 x 100 Gb/s, four cards to a GPU";
constexpr const char* kEfa3 = "AWS EC2 accelerated computing page: 3,200 Gb/s, unverified";
constexpr const char* kGcpA2 = "Google Cloud GPU network bandwidth page: 100 Gb/s, unverified";
constexpr const char* kGcpA3 = "Google Cloud A3 High: GPUDirect-TCPX, 4 x 200 Gb/s";
constexpr const char* kGcpMega =
    "Google Cloud A3 Mega: 8 GPU NICs of 200 Gb/s, as published all-reduces name them";
constexpr const char* kGcpUltra =
    "Google Cloud A3 Ultra and A4: a ConnectX-7 of 400 Gb/s per GPU (Cluster Toolkit 1.44.1, 2024)";
constexpr const char* kAzureA100 = "Azure ND A100 v4 pages: 8 x 200 Gb/s HDR, unverified";
constexpr const char* kAzureV5 =
    "Azure ND v5 pages: 8 x 400 Gb/s NDR (github.com/MicrosoftDocs/azure-docs, 2024)";
constexpr const char* kOciA100 = "Oracle Cloud compute shapes page: 1,600 Gb/s of RDMA, unverified";
constexpr const char* kOci = "Oracle Cloud compute shapes page, 2024: 8 x 2 x 200 Gb/s of RDMA";

std::vector<CloudShape> shapes() {
  return {
      {{"p4d", "p4d.24xlarge"}, "a100-sxm-40gb", "AWS-p4d", 4, 100, kEfa1},
      {{"p4de", "p4de.24xlarge"}, "a100-sxm-80gb", "AWS-p4de", 4, 100, kEfa1},
      {{"p5", "p5.48xlarge"}, "h100-sxm", "AWS-p5", 8, 400, kEfa2},
      {{"p5en", "p5en.48xlarge"}, "h200-sxm", "AWS-p5en", 8, 400, kEfa3},
      {{"p6-b200", "p6-b200.48xlarge"}, "b200-sxm", "AWS-p6-b200", 8, 400, kEfa3},
      {{"a2-high", "a2-highgpu-8g"}, "a100-sxm-40gb", "GCP-a2-high", 1, 100, kGcpA2},
      {{"a2-ultra", "a2-ultragpu-8g"}, "a100-sxm-80gb", "GCP-a2-ultra", 1, 100, kGcpA2},
      {{"a3-high", "a3-highgpu-8g"}, "h100-sxm", "GCP-a3-high", 4, 200, kGcpA3},
      {{"a3-mega", "a3-megagpu-8g"}, "h100-sxm", "GCP-a3-mega", 8, 200, kGcpMega},
      {{"a3-ultra", "a3-ultragpu-8g"}, "h200-sxm", "GCP-a3-ultra", 8, 400, kGcpUltra},
      {{"a4", "a4-highgpu-8g"}, "b200-sxm", "GCP-a4", 8, 400, kGcpUltra},
      {{"nd-a100-v4", "nd96asr-v4"}, "a100-sxm-40gb", "Azure-ND-A100-v4", 8, 200, kAzureA100},
      {{"ndm-a100-v4", "nd96amsr-a100-v4"}, "a100-sxm-80gb", "Azure-NDm-A100-v4", 8, 200, kAzureA100},
      {{"nd-h100-v5", "nd96isr-h100-v5"}, "h100-sxm", "Azure-ND-H100-v5", 8, 400, kAzureV5},
      {{"nd-h200-v5", "nd96isr-h200-v5"}, "h200-sxm", "Azure-ND-H200-v5", 8, 400, kAzureV5},
      {{"bm.gpu4.8"}, "a100-sxm-40gb", "OCI-BM.GPU4.8", 8, 200, kOciA100},
      {{"bm.gpu.h100.8"}, "h100-sxm", "OCI-BM.GPU.H100.8", 8, 400, kOci},
      {{"bm.gpu.h200.8"}, "h200-sxm", "OCI-BM.GPU.H200.8", 8, 400, kOci},
  };
}

NodeLayout layout_of(const CloudShape& shape, Architecture architecture) {
  NodeLayout layout;
  layout.name = shape.label;
  layout.gpus = 8;
  layout.nics = shape.nics;
  layout.cpus = 2;
  layout.nic_bytes_per_s = nic_rate(shape.gigabits);
  layout.source =
      std::string(shape.source) + "; board as in the maker's system; link rates: NCCL topology model";
  switch (architecture) {
    case Architecture::kAmpere:
      layout.pcie_switches = 4;
      layout.nvlink_bytes_per_s = 12 * kNcclNvLink80;
      layout.pcie_bytes_per_s = kNcclPcieGen4;
      layout.cpu_interconnect_bytes_per_s = kNcclAmdSocket;
      break;
    case Architecture::kBlackwell:
      layout.nvlink_bytes_per_s = 18 * kNcclNvLink100;
      layout.pcie_bytes_per_s = kNcclPcieGen5;
      layout.cpu_interconnect_bytes_per_s = kNcclEmeraldRapids;
      break;
    default:
      layout.nvlink_bytes_per_s = 18 * kNcclNvLink90;
      layout.pcie_bytes_per_s = kNcclPcieGen5;
      layout.cpu_interconnect_bytes_per_s = kNcclSapphireRapids;
  }
  if (shape.nics < layout.pcie_switches) layout.pcie_switches = 4;
  return layout;
}

}  // namespace

std::vector<NamedNode> cloud_nodes() {
  std::vector<NamedNode> nodes;
  for (CloudShape& shape : shapes()) {
    const GpuType& gpu = known_gpu(shape.gpu);
    nodes.push_back({std::move(shape.names), build_node(layout_of(shape, gpu.architecture), gpu)});
  }
  return nodes;
}

// On-demand list prices in the clouds' first American region, as examples to compute with: they change, and
// nobody who rents for months pays them.
std::optional<CataloguePrice> catalogue_price(std::string_view node) {
  struct Row {
    const char* label;
    double node_hour;
    const char* date;
    const char* source;
  };
  constexpr const char* kAws = "AWS EC2, us-east-1, as github.com/datareceipts/data-receipts read it";
  constexpr const char* kAzure = "Azure, Linux, East US, as github.com/datareceipts/data-receipts read it";
  static constexpr Row kRows[] = {
      {"AWS-p4d", 21.957642, "2026-11", kAws},
      {"AWS-p4de", 27.44705, "2026-11", kAws},
      {"AWS-p5", 55.04, "2026-11", kAws},
      {"AWS-p5en", 63.296, "2026-08", "AWS EC2, us-east-1, as github.com/dstackai/dstack/pull/4110 read it"},
      {"GCP-a2-high", 8 * 3.673385, "2026-02",
       "Google Cloud, us-central1, as github.com/Cyclenerd/google-cloud-pricing-cost-calculator read it"},
      {"GCP-a3-high", 88.49, "2026-04", "Google Cloud, us-central1: unverified"},
      {"Azure-ND-A100-v4", 27.197, "2026-11", kAzure},
      {"Azure-NDm-A100-v4", 32.77, "2025-01",
       "Azure, Linux, East US, as github.com/skypilot-org/skypilot-catalog (v6) read it; date about"},
      {"Azure-ND-H100-v5", 98.32, "2026-11", kAzure},
  };
  const auto type = catalogue_node(node);
  if (!type) return std::nullopt;
  for (const Row& row : kRows) {
    if (type->name == row.label)
      return CataloguePrice{row.node_hour / type->gpus, row.date, std::string(row.source) + " (node / GPUs)"};
  }
  return std::nullopt;
}

}  // namespace orrery

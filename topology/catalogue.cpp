// Machines by name: look-up, and nodes that a scenario describes itself.

#include <algorithm>
#include <cctype>
#include <utility>

#include "topology/catalogue_tables.hpp"
#include "topology/node_layout.hpp"

namespace orrery {
namespace {

const std::vector<NamedNode>& nodes() {
  static const std::vector<NamedNode> list = [] {
    std::vector<NamedNode> all = own_nodes();
    for (NamedNode& node : cloud_nodes()) all.push_back(std::move(node));
    return all;
  }();
  return list;
}

}  // namespace

std::string folded_name(std::string_view name) {
  std::string key;
  for (const char c : name) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    key += lower == '_' || lower == ' ' ? '-' : lower;
  }
  for (const std::string_view maker : {"nvidia-", "amd-"})
    if (key.starts_with(maker)) return key.substr(maker.size());
  return key;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  for (const NamedGpu& entry : gpu_table()) names.push_back(entry.name);
  return names;
}

std::optional<GpuType> catalogue_gpu(std::string_view name) {
  const std::string key = folded_name(name);
  for (const NamedGpu& entry : gpu_table())
    if (key == entry.name || key == folded_name(entry.type.name) ||
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
  const std::string key = folded_name(name);
  for (const NamedNode& entry : nodes())
    if (std::ranges::find(entry.names, key) != entry.names.end()) return entry.type;
  return std::nullopt;
}

NodeType make_node(const NodeShape& shape, const GpuType& gpu_type) {
  // What NCCL takes off a datasheet's NVLink rate: 20.6 of 25 GB/s per link on Hopper, 40.1 of 50 on
  // Blackwell, 20 of 25 before (NCCL topology model). PCIe: 48 of 64 GB/s and so on, three quarters in every
  // generation.
  const bool hopper = gpu_type.architecture == Architecture::kHopper;
  const bool blackwell = gpu_type.architecture == Architecture::kBlackwell;
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

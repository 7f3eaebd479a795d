#include "topology/node_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

struct Builder {
  NodeType node;

  std::int32_t add_devices(const char* stem, DeviceKind kind, std::int32_t count) {
    const auto first = static_cast<std::int32_t>(node.devices.size());
    for (std::int32_t i = 0; i < count; ++i) node.devices.push_back({fmt::format("{}{}", stem, i), kind});
    return first;
  }

  void link(std::int32_t a, std::int32_t b, LinkKind kind, double bytes_per_s, double latency_s) {
    const auto name = [&](std::int32_t device) {
      return node.devices[static_cast<std::size_t>(device)].name;
    };
    node.links.push_back({name(a) + "-" + name(b), a, b, kind, bytes_per_s, latency_s});
  }

  // Hangs `count` devices from `first` evenly on `hubs` hubs from `first_hub`.
  void hang(std::int32_t first, std::int32_t count, std::int32_t first_hub, std::int32_t hubs, double rate) {
    for (std::int32_t i = 0; i < count; ++i)
      link(first + i, first_hub + i * hubs / count, LinkKind::kPcie, rate, kPcieHopLatency);
  }
};

}  // namespace

// Its `nvidia-smi topo -m`, with one or two cables between a pair.
std::vector<DirectNvLinks> hybrid_cube_mesh() {
  return {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
          {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
}

std::vector<DirectNvLinks> bridged_pairs(std::int32_t gpus, std::int32_t cables) {
  std::vector<DirectNvLinks> pairs;
  for (std::int32_t gpu = 0; gpu + 1 < gpus; gpu += 2) pairs.push_back({gpu, gpu + 1, cables});
  return pairs;
}

NodeType build_node(const NodeLayout& layout, const GpuType& gpu) {
  Builder builder;
  NodeType& node = builder.node;
  node.name = layout.name;
  node.gpu = gpu;
  node.gpus = layout.gpus;
  node.nics = layout.nics;
  node.nic_bytes_per_s = layout.nic_bytes_per_s;
  node.nic_latency_s = kNicLatency;
  node.source = layout.source;

  const std::int32_t gpus = builder.add_devices("gpu", DeviceKind::kGpu, layout.gpus);
  const std::int32_t nics = builder.add_devices("nic", DeviceKind::kNic, layout.nics);
  if (layout.nvlink_bytes_per_s > 0 && layout.gpus > 1) {
    const std::int32_t nvswitch = builder.add_devices("nvswitch", DeviceKind::kNvSwitch, 1);
    for (std::int32_t i = 0; i < layout.gpus; ++i)
      builder.link(gpus + i, nvswitch, LinkKind::kNvLink, layout.nvlink_bytes_per_s, kNvLinkHopLatency);
  }
  // No switch on the way; the latency of NCCL's table is the same.
  for (const DirectNvLinks& pair : layout.direct_nvlinks)
    builder.link(gpus + pair.a, gpus + pair.b, LinkKind::kNvLink,
                 pair.cables * layout.direct_nvlink_bytes_per_s, 2 * kNvLinkHopLatency);
  const std::int32_t switches = builder.add_devices("pcie", DeviceKind::kPcieSwitch, layout.pcie_switches);
  const std::int32_t cpus = builder.add_devices("cpu", DeviceKind::kCpu, layout.cpus);
  builder.hang(gpus, layout.gpus, switches, layout.pcie_switches, layout.pcie_bytes_per_s);
  builder.hang(nics, layout.nics, switches, layout.pcie_switches, layout.pcie_bytes_per_s);
  builder.hang(switches, layout.pcie_switches, cpus, layout.cpus, layout.pcie_bytes_per_s);
  const std::int32_t board = layout.cpus_per_board > 0 ? layout.cpus_per_board : layout.cpus;
  for (std::int32_t a = 0; a < layout.cpus; ++a)
    for (std::int32_t b = a + 1; b < layout.cpus && b / board == a / board; ++b)
      builder.link(cpus + a, cpus + b, LinkKind::kCpuInterconnect, layout.cpu_interconnect_bytes_per_s,
                   kCpuInterconnectLatency);
  return std::move(builder.node);
}

}  // namespace orrery

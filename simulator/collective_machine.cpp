// What collectives need to know of a node type.

#include <algorithm>
#include <numeric>
#include <vector>

#include "simulator/collective_cost.hpp"

namespace orrery {
namespace {

nccl::Generation generation(const GpuType& gpu) {
  switch (gpu.architecture) {
    case Architecture::kVolta: return nccl::Generation::kVolta;
    case Architecture::kAmpere:
    case Architecture::kAda: return nccl::Generation::kAmpere;
    case Architecture::kHopper: return nccl::Generation::kHopper;
    case Architecture::kBlackwell: return nccl::Generation::kBlackwell;
    // RCCL prices with tables of its own; the oldest that pass no NVLS and no wide LL are nearest.
    case Architecture::kCdna3: return nccl::Generation::kAmpere;
    case Architecture::kHost:
    case Architecture::kUnknown: break;
  }
  // By the types that it calculates in: bf16 came with Ampere, fp8 with Hopper.
  if (gpu.peak(DType::kFp8) > 0) return nccl::Generation::kHopper;
  return gpu.peak(DType::kBf16) > 0 ? nccl::Generation::kAmpere : nccl::Generation::kVolta;
}

DeviceKind kind_of(const NodeType& node, std::int32_t device) {
  return node.devices[static_cast<std::size_t>(device)].kind;
}

}  // namespace

CollectiveMachine collective_machine(const NodeType& node) {
  CollectiveMachine machine;
  machine.generation = generation(node.gpu);
  machine.nics = node.nics;
  machine.nic_bytes_per_s = node.nic_bytes_per_s;
  for (const NodeLink& link : node.links) {
    const DeviceKind a = kind_of(node, link.a), b = kind_of(node, link.b);
    if (a == DeviceKind::kNvSwitch || b == DeviceKind::kNvSwitch) machine.nvswitch = true;
    if (link.kind == LinkKind::kPcie && (a == DeviceKind::kNic || b == DeviceKind::kNic))
      machine.nic_bytes_per_s = std::min(machine.nic_bytes_per_s, link.bytes_per_s);
  }
  if (node.gpu.architecture == Architecture::kCdna3) machine.nvswitch = false;
  return machine;
}

double nvlink_rate(const NodeType& node, std::span<const std::int32_t> gpus) {
  if (gpus.size() < 2) return 0;
  std::vector<double> rate(node.devices.size(), 0);
  std::vector<char> member(node.devices.size(), 0);
  for (const std::int32_t gpu : gpus) member[static_cast<std::size_t>(gpu)] = 1;
  // Devices joined so far; an NVSwitch joins all that hang on it.
  std::vector<std::int32_t> island(node.devices.size());
  std::iota(island.begin(), island.end(), 0);
  const auto root = [&](std::int32_t device) {
    while (island[static_cast<std::size_t>(device)] != device)
      device = island[static_cast<std::size_t>(device)];
    return device;
  };
  const auto takes_part = [&](std::int32_t device) {
    return member[static_cast<std::size_t>(device)] || kind_of(node, device) == DeviceKind::kNvSwitch;
  };
  for (const NodeLink& link : node.links) {
    if (link.kind != LinkKind::kNvLink || !takes_part(link.a) || !takes_part(link.b)) continue;
    rate[static_cast<std::size_t>(link.a)] += link.bytes_per_s;
    rate[static_cast<std::size_t>(link.b)] += link.bytes_per_s;
    island[static_cast<std::size_t>(root(link.a))] = root(link.b);
  }
  double least = rate[static_cast<std::size_t>(gpus.front())];
  for (const std::int32_t gpu : gpus) {
    if (root(gpu) != root(gpus.front())) return 0;
    least = std::min(least, rate[static_cast<std::size_t>(gpu)]);
  }
  return least;
}

}  // namespace orrery

#include "topology/host_cores.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

// A blocked product on one core reaches some 50 of the 80 GFLOP/s that HostShape assumes of its peak.
constexpr double kProductEfficiency = 0.625;
// Scores are a small product with a softmax of library exponentials between.
constexpr double kAttentionEfficiency = 0.25;
constexpr double kMemoryEfficiency = 0.8;
// Bookkeeping of one instruction: its dependencies, its operands, a look at the clock.
constexpr double kInstruction = 1e-6;
// Waking a thread that sleeps until another one is there (a futex), per step of an algorithm.
constexpr double kWake = 5e-6;
// Deviation of ln(true / assumed): within a factor of 2.3 in nine of ten cases.
constexpr double kAssumed = 0.5;

CollectiveCosts shared_memory_collectives() {
  CollectiveCosts costs;  // Rings over shared memory, no NCCL.
  costs.nvls = false;
  costs.node_latency = costs.node_bandwidth = {kAssumed, 0.2};
  return costs;
}

}  // namespace

NodeType make_host_node(const HostShape& shape) {
  NodeType node;
  node.name = fmt::format("host of {} cores", shape.cores);
  node.source = "described by cores, slots and memory";
  node.cores = shape.cores;
  node.gpus = shape.slots;
  node.gpu.name = "host-core";
  node.gpu.architecture = Architecture::kHost;
  // Narrower numbers are kept as such and widened on the way into a kernel, which computes in fp32.
  for (const DType type : {DType::kFp32, DType::kBf16, DType::kFp16})
    node.gpu.peak_flops_per_s[static_cast<std::size_t>(type)] = shape.peak_flops_per_s;
  node.gpu.memory_bytes = shape.memory_bytes / shape.slots;
  node.gpu.memory_bytes_per_s = shape.memory_bytes_per_s;
  node.gpu.source = "a core of the described machine";
  for (std::int32_t slot = 0; slot < shape.slots; ++slot)
    node.devices.push_back({fmt::format("slot{}", slot), DeviceKind::kGpu});
  node.devices.push_back({"memory", DeviceKind::kCpu});
  for (std::int32_t slot = 0; slot < shape.slots; ++slot)
    node.links.push_back({fmt::format("slot{}-memory", slot), slot, shape.slots, LinkKind::kCpuInterconnect,
                          shape.memory_bytes_per_s / 2, 0});
  return node;
}

Profile assumed_host_profile(const GpuType& core) {
  Profile profile;
  profile.name = core.name + ", assumed";
  profile.matmul_efficiency = kProductEfficiency;
  profile.attention_efficiency = profile.attention_backward_efficiency = kAttentionEfficiency;
  profile.memory_efficiency = kMemoryEfficiency;
  profile.communication_on_core = true;
  profile.instruction_s = kInstruction;
  profile.step_latency_s = kWake;
  profile.collectives = shared_memory_collectives();
  KernelErrors& errors = profile.errors;
  errors.matmul = errors.attention = errors.attention_backward = errors.memory =
      errors.rows = {kAssumed, 0.2};
  errors.launch_sigma = 0.05;

  const auto note = [&](const char* figure, double value, const char* unit) {
    profile.provenance.push_back(
        fmt::format("{} {:.3g}{}: assumed, no host was measured", figure, value, unit));
  };
  note("matmul_efficiency", profile.matmul_efficiency, " of peak");
  note("attention_efficiency", profile.attention_efficiency, " of peak, forward and backward");
  note("memory_efficiency", profile.memory_efficiency, " of the core's bandwidth");
  note("instruction", profile.instruction_s * 1e6, " us");
  note("step_latency", profile.step_latency_s * 1e6, " us");
  profile.provenance.push_back("communication_on_core: a rank's thread does its own communication");
  return profile;
}

}  // namespace orrery

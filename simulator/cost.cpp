#include "simulator/cost.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "base/error.hpp"

namespace orrery {
namespace {

double arithmetic_seconds(const Kernel& kernel, double efficiency, const GpuType& gpu) {
  if (kernel.flops <= 0) return 0;
  const double peak = gpu.peak(kernel.dtype);
  if (peak <= 0)
    fail(ErrorKind::kInfeasible, "{} has no {} arithmetic; choose another compute type or GPU", gpu.name,
         to_string(kernel.dtype));
  return kernel.flops / (peak * efficiency);
}

int ceil_log2(std::int32_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<std::uint32_t>(n - 1)); }

// `payload` bytes, of which each of n ranks holds a part: what each link carries in (n−1) steps.
double ring_bytes(double payload, double n) { return payload * (n - 1) / n; }

}  // namespace

SimTime kernel_time(const Kernel& kernel, const GpuType& gpu, const Profile& profile) {
  double arithmetic_s = 0;
  switch (kernel.kind) {
    case KernelKind::kFixed: return kernel.fixed;
    case KernelKind::kMatmul:
      arithmetic_s = arithmetic_seconds(kernel, profile.matmul_efficiency, gpu);
      break;
    case KernelKind::kAttention:
      arithmetic_s = arithmetic_seconds(kernel, profile.attention_efficiency, gpu);
      break;
    case KernelKind::kAttentionBackward:
      arithmetic_s = arithmetic_seconds(kernel, profile.attention_backward_efficiency, gpu);
      break;
    case KernelKind::kElementwise:
    case KernelKind::kEmbedding:
    case KernelKind::kCrossEntropy:
    case KernelKind::kOptimizer: break;
  }
  const double bytes = static_cast<double>(kernel.read_bytes) + static_cast<double>(kernel.written_bytes);
  const double memory_s = bytes / (gpu.memory_bytes_per_s * profile.memory_efficiency);
  return from_seconds(std::max({arithmetic_s, memory_s, profile.kernel_floor_s}));
}

TransferCost collective_cost(CollectiveKind kind, std::int64_t bytes, const GroupShape& shape, double rate,
                             const Profile& profile) {
  assert(shape.ranks >= shape.nodes && shape.nodes >= 1 && shape.channels >= 1);
  if (shape.ranks <= 1) return {};
  const double n = shape.ranks;
  const double payload = static_cast<double>(bytes) / shape.channels;
  const auto cost = [&](int node_steps, int network_steps, double link_bytes) {
    return TransferCost{profile.collective_base_s + node_steps * profile.step_latency_s +
                            network_steps * profile.network_step_latency_s,
                        std::llround(std::ceil(link_bytes))};
  };
  const int between = shape.nodes - 1, inside = shape.ranks - shape.nodes;
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll: return cost(inside, between, ring_bytes(payload, n));
    case CollectiveKind::kBroadcast: return cost(inside, between, payload);
    case CollectiveKind::kAllReduce: break;
  }
  const TransferCost ring = cost(2 * inside, 2 * between, 2 * ring_bytes(payload, n));
  const int tree_between = ceil_log2(shape.nodes), tree_inside = ceil_log2(shape.ranks) - tree_between;
  const TransferCost tree = cost(2 * tree_inside, 2 * tree_between, 2 * payload);
  const auto seconds = [&](const TransferCost& it) {
    return it.latency_s + static_cast<double>(it.bytes) / rate;
  };
  return seconds(tree) < seconds(ring) ? tree : ring;
}

}  // namespace orrery

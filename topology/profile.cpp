#include "topology/profile.hpp"

#include <fmt/format.h>

#include "topology/cluster.hpp"
#include "topology/host_cores.hpp"
#include "topology/kernel_costs.hpp"

namespace orrery {
namespace {

// Measured on two H200 (driver 580.159.04, CUDA 13.0, NCCL 2.28.3) by tools/gpu-check; the whole answer is
// docs/results/cuda-probe-h200x2.json. The kernel figures are in kernel_costs.cpp.
constexpr double kLaunch = 4.03e-6;
// An empty kernel as one of 1,000 nodes of a replayed graph takes this in all.
constexpr double kGraphNode = 0.678e-6;
// Sends of 4 to 256 KiB between two GPUs took 8.7 to 10.2 us one after another on a stream, median 9.6: that,
// less the 0.6 us of the way.
constexpr double kCollectiveBase = 9.6e-6 - 0.6e-6;
// GEMMs beside a back-to-back all-reduce ran 1.06–1.23 times longer, the all-reduce 1.3–1.9 times: middles.
constexpr double kComputeInterference = (1.06 + 1.23) / 2;
constexpr double kTransferInterference = (1.3 + 1.9) / 2;

}  // namespace

Profile default_profile(const GpuType& gpu) {
  if (gpu.architecture == Architecture::kHost) return assumed_host_profile(gpu);
  const bool measured = gpu.name.starts_with("H200");
  const std::string origin =
      measured ? "measured on H200" : fmt::format("borrowed from H200: {} is not measured", gpu.name);
  Profile profile;
  profile.name = measured ? "H200, measured" : gpu.name + ", borrowed from H200";
  set_kernel_costs(gpu, profile);
  profile.launch_s = kLaunch;
  profile.graph_node_s = kGraphNode;
  profile.collectives = default_collectives();
  profile.collective_base_s = kCollectiveBase;

  const auto note = [&](const char* figure, double value, const char* unit, const std::string& from) {
    profile.provenance.push_back(fmt::format("{} {:.3g}{}: {}", figure, value, unit, from));
  };
  const std::string fit = origin + ", fitted to docs/results/kernels-h200.csv";
  note("matmul_efficiency", profile.matmul_efficiency, " of peak at full clocks", fit);
  note("sustained_slowdown", profile.sustained_slowdown, "", fit);
  note("attention_efficiency", profile.attention_efficiency, " of peak, products only", fit);
  note("attention_backward_efficiency", profile.attention_backward_efficiency, " of peak, products only",
       fit);
  note("memory_efficiency", profile.memory_efficiency, " of the datasheet's bandwidth", fit);
  note("launch", profile.launch_s * 1e6, " us", origin);
  note("graph_node", profile.graph_node_s * 1e6, " us", origin);
  note("kernel_floor", profile.kernel_floor_s * 1e6, " us", fit + ", a copy of few bytes");
  note("collective_base", profile.collective_base_s * 1e6, " us", origin + ", small message less its way");
  note("collective_call", profile.collectives.call_s * 1e6, " us",
       origin + ", small collectives of two GPUs less NCCL's own latency");
  note("collective_ramp", profile.collectives.ramp, " per halving below 1 GiB",
       origin + ", collectives of two GPUs against NCCL's tuning model");
  if (measured) {
    profile.compute_interference = kComputeInterference;
    profile.transfer_interference = kTransferInterference;
    note("compute_interference", profile.compute_interference, "", "measured on H200, middle of 1.06–1.23");
    note("transfer_interference", profile.transfer_interference, "", "measured on H200, middle of 1.3–1.9");
  } else {
    note("compute_interference", 1.0, "", "not measured: compute and transfers don't slow each other");
    note("transfer_interference", 1.0, "", "not measured: compute and transfers don't slow each other");
  }
  return profile;
}

}  // namespace orrery

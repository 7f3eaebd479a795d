#include "topology/profile.hpp"

#include <fmt/format.h>

#include "topology/cluster.hpp"

namespace orrery {
namespace {

// Measured on two H200 (driver 580.159.04, CUDA 13.0, NCCL 2.28.3) by tools/gpu-check; the whole answer is
// docs/results/cuda-probe-h200x2.json. Peaks of the datasheet: 989.4 TFLOP/s in bf16, 4.8 TB/s.
constexpr double kPeak = 989.4e12;
// Sustained (after 1.5 s of back-to-back launches) bf16 GEMMs, TFLOP/s: 16384×6144×2048 675, 16384×11008×2048
// 666, 16384×2048×5504 631, 8192×28672×4096 671. The median of four is the mean of the middle two.
constexpr double kMatmulEfficiency = (666.4e12 + 671.2e12) / 2 / kPeak;
// cuDNN 9.19 attention on one H200, causal, 2 sequences, 32 query and 8 key heads, 4096 tokens, head
// dimension 128; timed apart from the probe, which has no attention.
constexpr double kAttentionEfficiency = 585e12 / kPeak;
constexpr double kAttentionBackwardEfficiency = 468e12 / kPeak;
// Device-to-device copy of 2 GiB, read + written.
constexpr double kMemoryEfficiency = 4.25 / 4.8;
constexpr double kLaunch = 4.03e-6;
// An empty kernel as one of 1,000 nodes of a replayed graph takes this in all, so no kernel is shorter and no
// node is cheaper than that.
constexpr double kGraphNode = 0.678e-6;
// Hardware latency per step of NCCL's tuning model (2.30, LL): 0.6 us over NVLink; 5 us over the network
// (tree, which wins where latency counts).
constexpr double kStepLatency = 0.6e-6;
constexpr double kNetworkStepLatency = 5e-6;
// All-reduces of 4 to 256 KiB between two GPUs took 9.0 to 12.0 us one after another on a stream,
// median 10.1: that, less two steps.
constexpr double kCollectiveBase = 10.1e-6 - 2 * kStepLatency;
// GEMMs beside a back-to-back all-reduce ran 1.06–1.23 times longer, the all-reduce 1.3–1.9 times: middles.
constexpr double kComputeInterference = (1.06 + 1.23) / 2;
constexpr double kTransferInterference = (1.3 + 1.9) / 2;

}  // namespace

Profile default_profile(const GpuType& gpu) {
  const bool measured = gpu.name.starts_with("H200");
  const std::string origin =
      measured ? "measured on H200" : fmt::format("borrowed from H200: {} is not measured", gpu.name);
  Profile profile;
  profile.name = measured ? "H200, measured" : gpu.name + ", borrowed from H200";
  profile.matmul_efficiency = kMatmulEfficiency;
  profile.attention_efficiency = kAttentionEfficiency;
  profile.attention_backward_efficiency = kAttentionBackwardEfficiency;
  profile.memory_efficiency = kMemoryEfficiency;
  profile.launch_s = kLaunch;
  profile.graph_node_s = kGraphNode;
  profile.kernel_floor_s = kGraphNode;
  profile.step_latency_s = kStepLatency;
  profile.network_step_latency_s = kNetworkStepLatency;
  profile.collective_base_s = kCollectiveBase;

  const auto note = [&](const char* figure, double value, const char* unit, const std::string& from) {
    profile.provenance.push_back(fmt::format("{} {:.3g}{}: {}", figure, value, unit, from));
  };
  note("matmul_efficiency", profile.matmul_efficiency, "",
       origin + ", median of four sustained bf16 shapes, 669 of 989 TFLOP/s");
  note("attention_efficiency", profile.attention_efficiency, "", origin + ", cuDNN, 585 of 989 TFLOP/s");
  note("attention_backward_efficiency", profile.attention_backward_efficiency, "",
       origin + ", cuDNN, 468 of 989 TFLOP/s");
  note("memory_efficiency", profile.memory_efficiency, "", origin + ", device copy, 4.25 of 4.8 TB/s");
  note("launch", profile.launch_s * 1e6, " us", origin);
  note("graph_node", profile.graph_node_s * 1e6, " us", origin);
  note("kernel_floor", profile.kernel_floor_s * 1e6, " us", origin + ", an empty kernel of a replayed graph");
  note("step_latency", profile.step_latency_s * 1e6, " us", "NCCL tuning model, NVLink");
  note("network_step_latency", profile.network_step_latency_s * 1e6, " us",
       "NCCL tuning model, network tree");
  note("collective_base", profile.collective_base_s * 1e6, " us",
       origin + ", small all-reduce of two GPUs less its launch and steps");
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

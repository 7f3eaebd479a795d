#include "simulator/cost.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"

using namespace orrery;

namespace {

// Round numbers: 100 TFLOP/s of bf16, 1 TB/s, everything reaches half of it.
GpuType round_gpu() {
  GpuType gpu;
  gpu.name = "round";
  gpu.peak_flops_per_s[static_cast<std::size_t>(DType::kBf16)] = 100e12;
  gpu.memory_bytes_per_s = 1e12;
  return gpu;
}

Profile round_profile() {
  Profile profile;
  profile.matmul_efficiency = 0.5;
  profile.attention_efficiency = 0.25;
  profile.attention_backward_efficiency = 0.125;
  profile.memory_efficiency = 0.5;
  profile.kernel_floor_s = 2e-6;
  profile.step_latency_s = 1e-6;
  profile.network_step_latency_s = 10e-6;
  profile.collective_base_s = 5e-6;
  return profile;
}

Kernel kernel(KernelKind kind, double flops, std::int64_t read, std::int64_t written = 0) {
  Kernel k;
  k.kind = kind;
  k.flops = flops;
  k.read_bytes = read;
  k.written_bytes = written;
  return k;
}

double microseconds(const Kernel& k) { return kernel_time(k, round_gpu(), round_profile()).seconds() * 1e6; }

}  // namespace

TEST_CASE("a kernel takes the longest of arithmetic, memory and floor", "[simulator]") {
  // 5 GFLOP at 50 TFLOP/s: 100 us. 50 MB at 0.5 TB/s: 100 us.
  CHECK(microseconds(kernel(KernelKind::kMatmul, 5e9, 1000)) == Approx(100));
  CHECK(microseconds(kernel(KernelKind::kMatmul, 1e9, 25'000'000, 25'000'000)) == Approx(100));
  CHECK(microseconds(kernel(KernelKind::kMatmul, 1, 1)) == Approx(2));
  CHECK(microseconds(kernel(KernelKind::kAttention, 5e9, 1000)) == Approx(200));
  CHECK(microseconds(kernel(KernelKind::kAttentionBackward, 5e9, 1000)) == Approx(400));
  // Element-wise arithmetic hides behind its memory traffic.
  CHECK(microseconds(kernel(KernelKind::kElementwise, 5e12, 5'000'000)) == Approx(10));
}

TEST_CASE("a fixed kernel takes what it says, below the floor too", "[simulator]") {
  Kernel k;
  k.kind = KernelKind::kFixed;
  k.fixed = SimTime{123};
  CHECK(kernel_time(k, round_gpu(), round_profile()) == SimTime{123});
}

TEST_CASE("arithmetic that the GPU doesn't have is refused by name", "[simulator]") {
  Kernel k = kernel(KernelKind::kMatmul, 1e9, 1);
  k.dtype = DType::kFp8;
  CHECK_THROWS_WITH(kernel_time(k, round_gpu(), round_profile()), Catch::Contains("round has no fp8"));
}

TEST_CASE("ring costs by hand", "[simulator]") {
  const auto cost = [](CollectiveKind kind, GroupShape shape) {
    return collective_cost(kind, 8'000'000, shape, 100e9, round_profile());
  };
  // Eight ranks of one node: 7 steps of 1 us and the base; 7/8 of 8 MB.
  CHECK(cost(CollectiveKind::kAllGather, {8, 1, 1}).latency_s == Approx(12e-6));
  CHECK(cost(CollectiveKind::kAllGather, {8, 1, 1}).bytes == 7'000'000);
  CHECK(cost(CollectiveKind::kReduceScatter, {8, 1, 1}).bytes == 7'000'000);
  CHECK(cost(CollectiveKind::kAllToAll, {8, 1, 1}).bytes == 7'000'000);
  CHECK(cost(CollectiveKind::kBroadcast, {8, 1, 1}).bytes == 8'000'000);
  // 16 ranks on two nodes, each with eight NICs: 14 node steps, 1 network step; a channel has an eighth.
  CHECK(cost(CollectiveKind::kAllGather, {16, 2, 8}).latency_s == Approx(5e-6 + 14e-6 + 10e-6));
  CHECK(cost(CollectiveKind::kAllGather, {16, 2, 8}).bytes == 937'500);
  CHECK(cost(CollectiveKind::kAllReduce, {1, 1, 1}).latency_s == 0);
  CHECK(cost(CollectiveKind::kAllReduce, {1, 1, 1}).bytes == 0);
}

TEST_CASE("small all-reduces take the tree, large ones the ring", "[simulator]") {
  const GroupShape shape{64, 64, 1};
  // 1 kB: 2·6 tree steps against 2·63 ring steps over the network.
  const TransferCost small = collective_cost(CollectiveKind::kAllReduce, 1000, shape, 50e9, round_profile());
  CHECK(small.latency_s == Approx(5e-6 + 12 * 10e-6));
  CHECK(small.bytes == 2000);
  // 8 GB: the tree moves 1/64 more, which takes 2.5 ms; its fewer steps save 1.14 ms.
  const TransferCost large =
      collective_cost(CollectiveKind::kAllReduce, 8'000'000'000, shape, 100e9, round_profile());
  CHECK(large.latency_s == Approx(5e-6 + 126 * 10e-6));
  CHECK(large.bytes == 15'750'000'000);
}

TEST_CASE("no collective beats its bound", "[simulator]") {
  // The least any algorithm can move through one link: what a rank lacks or has to give away.
  for (const std::int32_t nodes : {1, 2, 5, 16})
    for (const std::int32_t per_node : {1, 3, 8})
      for (const std::int64_t bytes : {1LL, 1000LL, 123'456'789LL}) {
        if (nodes * per_node == 1) continue;
        const GroupShape shape{nodes * per_node, nodes, 1};
        const double n = shape.ranks, share = static_cast<double>(bytes) * (n - 1) / n;
        const auto moved = [&](CollectiveKind kind) {
          return static_cast<double>(collective_cost(kind, bytes, shape, 50e9, round_profile()).bytes);
        };
        CHECK(moved(CollectiveKind::kAllReduce) >= 2 * share);
        CHECK(moved(CollectiveKind::kAllGather) >= share);
        CHECK(moved(CollectiveKind::kReduceScatter) >= share);
        CHECK(moved(CollectiveKind::kBroadcast) >= static_cast<double>(bytes));
      }
}

TEST_CASE("two H200: predictions against measurements", "[simulator]") {
  // docs/results/cuda-probe-h200x2.json: NCCL 2.28.3 on two H200 joined by 18 NVLinks (370.8 GB/s by NCCL's
  // table). Nothing below but the base latency was fitted to them, and the tolerances say how far the
  // first-order model is off: it gives every collective the full link rate, which all-gather and
  // reduce-scatter of two ranks don't reach.
  const Profile profile = default_profile(catalogue_gpu("h200").value());
  constexpr double kLink = 370.8e9;
  const auto seconds = [&](CollectiveKind kind, std::int64_t bytes) {
    const TransferCost cost = collective_cost(kind, bytes, {2, 1, 1}, kLink, profile);
    return cost.latency_s + static_cast<double>(cost.bytes) / kLink;
  };
  constexpr std::int64_t kGiB = 1 << 30;
  CHECK(seconds(CollectiveKind::kAllReduce, kGiB) == Approx(3.253e-3).epsilon(0.11));
  CHECK(seconds(CollectiveKind::kAllGather, kGiB) == Approx(2.007e-3).epsilon(0.28));
  CHECK(seconds(CollectiveKind::kReduceScatter, kGiB) == Approx(2.040e-3).epsilon(0.30));
  // Never slower than measured: a model that is only optimistic can be corrected by one efficiency.
  CHECK(seconds(CollectiveKind::kAllReduce, kGiB) < 3.253e-3);
  // One size that the base latency wasn't fitted to: 1 MiB took 15.4 us.
  CHECK(seconds(CollectiveKind::kAllReduce, 1 << 20) == Approx(15.4e-6).epsilon(0.2));
}

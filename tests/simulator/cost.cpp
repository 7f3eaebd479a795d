#include "simulator/cost.hpp"

#include <catch2/catch.hpp>

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

TEST_CASE("a kernel without a shape takes the longer of arithmetic and memory, and the floor",
          "[simulator]") {
  // 5 GFLOP at 50 TFLOP/s: 100 us. 50 MB at 0.5 TB/s: 100 us. The floor is 2 us.
  CHECK(microseconds(kernel(KernelKind::kMatmul, 5e9, 1000)) == Approx(102));
  CHECK(microseconds(kernel(KernelKind::kMatmul, 1e9, 25'000'000, 25'000'000)) == Approx(102).epsilon(0.001));
  CHECK(microseconds(kernel(KernelKind::kMatmul, 1, 1)) == Approx(2));
  CHECK(microseconds(kernel(KernelKind::kAttention, 5e9, 1000)) == Approx(202));
  CHECK(microseconds(kernel(KernelKind::kAttentionBackward, 5e9, 1000)) == Approx(402));
  // Both at once take a little longer than either: the fourth root of two.
  CHECK(microseconds(kernel(KernelKind::kMatmul, 5e9, 25'000'000, 25'000'000)) == Approx(2 + 118.92));
  // Element-wise arithmetic hides behind its memory traffic.
  CHECK(microseconds(kernel(KernelKind::kElementwise, 5e12, 5'000'000)) == Approx(12));
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

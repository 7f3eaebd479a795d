#include "simulator/kernel_model.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"

using namespace orrery;

namespace {

// Ten SMs of 10 TFLOP/s each, 1 TB/s, no cache: a tile of 128 × 128 × 1024 is 2 · 2^24 FLOP, 3.355 us at full
// rate.
GpuType ten_sms() {
  GpuType gpu;
  gpu.name = "ten";
  gpu.sms = 10;
  gpu.clock_hz = 1e9;
  gpu.peak_flops_per_s[static_cast<std::size_t>(DType::kBf16)] = 100e12;
  gpu.memory_bytes_per_s = 1e15;
  return gpu;
}

Kernel matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  Kernel kernel;
  kernel.kind = KernelKind::kMatmul;
  kernel.m = m;
  kernel.n = n;
  kernel.k = k;
  kernel.batch = batch;
  kernel.flops = 2.0 * static_cast<double>(m * n * k * batch);
  kernel.read_bytes = 2 * batch * (m * k + k * n);
  kernel.written_bytes = 2 * batch * m * n;
  return kernel;
}

Kernel attention(KernelKind kind, std::int64_t s, std::int64_t d, std::int64_t heads, bool causal) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.m = kernel.n = s;
  kernel.k = d;
  kernel.batch = heads;
  kernel.flops = (kind == KernelKind::kAttention ? 4.0 : 10.0) * static_cast<double>(s * s * d * heads);
  if (causal) kernel.flops /= 2;
  return kernel;
}

double microseconds(const Kernel& kernel, const Profile& profile, const GpuType& gpu = ten_sms()) {
  return kernel_seconds(kernel, gpu, profile) * 1e6;
}

}  // namespace

TEST_CASE("a matmul's tiles go in waves over the SMs", "[kernels]") {
  Profile profile;
  profile.matmul.quantisation = 1;
  profile.matmul.tile_start_s = 1e-6;
  // Twenty tiles of 256 × 128 are two waves of 2 · 256 · 128 · 1024 / 10 TFLOP/s = 6.711 us, each with its
  // start.
  CHECK(microseconds(matmul(256 * 10, 256, 1024), profile) == Approx(2 * (6.7109 + 1)).epsilon(1e-3));
  // Twenty-two need a third wave, or other tiles that fit as badly.
  const double more = microseconds(matmul(256 * 11, 256, 1024), profile);
  CHECK(more > microseconds(matmul(256 * 10, 256, 1024), profile) * 1.15);
  profile.matmul.quantisation = 0;
  CHECK(microseconds(matmul(256 * 11, 256, 1024), profile) < more);
}

TEST_CASE("a small deep product is split along k", "[kernels]") {
  Profile profile;
  profile.matmul.quantisation = 1;
  const double unsplit = 2.0 * 64 * 64 * 65536 / 10e12 * 1e6;  // One tile of 64 × 64 on one SM.
  profile.matmul.split_s = 1;
  CHECK(microseconds(matmul(64, 64, 65536), profile) == Approx(unsplit).epsilon(1e-3));
  profile.matmul.split_s = 1e-6;
  // Eight parts on ten SMs, and a microsecond for adding them up; sixteen would be two waves of half the
  // length.
  CHECK(microseconds(matmul(64, 64, 65536), profile) == Approx(unsplit / 8 + 1).epsilon(1e-3));
}

TEST_CASE("rows that aren't aligned to 16 bytes cost what was measured", "[kernels]") {
  Profile profile;
  profile.matmul.misaligned_4 = 3;
  profile.matmul.misaligned_2 = 6;
  const double aligned = microseconds(matmul(4096, 4096, 4096), profile);
  CHECK(microseconds(matmul(4096, 4100, 4096), profile) == Approx(3 * aligned).epsilon(0.05));
  CHECK(microseconds(matmul(4096, 4097, 4096), profile) == Approx(6 * aligned).epsilon(0.05));
  // 50,257 words are odd, 50,304 are padded to 16 bytes.
  CHECK(microseconds(matmul(8192, 50257, 1024), profile) >
        5 * microseconds(matmul(8192, 50304, 1024), profile));
}

TEST_CASE("FP8 products take what their sums and scales make of them", "[kernels]") {
  Profile profile;
  profile.matmul.fp8_fast = 1.25, profile.matmul.fp8_squares = 0.8, profile.matmul.fp8_rows = 0.5;
  GpuType gpu = ten_sms();
  gpu.peak_flops_per_s[static_cast<std::size_t>(DType::kFp8)] = 2 * gpu.peak(DType::kBf16);
  Kernel product = matmul(256 * 10, 256, 8192);
  product.dtype = DType::kFp8;
  const double exact = microseconds(product, profile, gpu);
  product.fp8.e5m2 = true;
  CHECK(microseconds(product, profile, gpu) == exact);
  product.fp8.fast = true;
  CHECK(microseconds(product, profile, gpu) == Approx(exact / 1.25).epsilon(1e-3));
  product.fp8 = {.scaling = Fp8Scaling::kSquares};
  CHECK(microseconds(product, profile, gpu) == Approx(exact / 0.8).epsilon(1e-3));
  product.fp8 = {.scaling = Fp8Scaling::kRows};
  CHECK(microseconds(product, profile, gpu) == Approx(exact / 0.5).epsilon(1e-3));
}

TEST_CASE("attention of a smaller head dimension takes more time per FLOP", "[kernels]") {
  Profile profile;
  profile.attention.exponential_share = 0.5;
  // Per score (128 + 64) against (64 + 64) units of time for 128 and 64 units of work, at 40 heads · 8 tiles
  // of 128 queries, an even number of waves.
  const double wide = microseconds(attention(KernelKind::kAttention, 1024, 128, 40, false), profile);
  const double narrow = microseconds(attention(KernelKind::kAttention, 1024, 64, 40, false), profile);
  CHECK(wide == Approx(40 * 1024.0 * 1024 * 4 * (128 + 64) / 100e12 * 1e6));
  CHECK(narrow / wide == Approx(128.0 / 192));
}

TEST_CASE("a causal mask saves half but for the diagonal's tiles", "[kernels]") {
  const Profile profile;
  CHECK(is_causal(attention(KernelKind::kAttention, 1024, 128, 40, true)));
  CHECK_FALSE(is_causal(attention(KernelKind::kAttentionBackward, 1024, 128, 40, false)));
  for (const KernelKind kind : {KernelKind::kAttention, KernelKind::kAttentionBackward}) {
    const double full = microseconds(attention(kind, 1024, 128, 40, false), profile);
    const double causal = microseconds(attention(kind, 1024, 128, 40, true), profile);
    CHECK(causal / full == Approx((8 + 1) / 16.0));  // 36 of 64 tiles of a head.
  }
}

TEST_CASE("streams come from the cache as far as it holds them", "[kernels]") {
  GpuType gpu = ten_sms();
  gpu.memory_bytes_per_s = 1e12;
  gpu.cache_bytes = 10'000'000;
  Profile profile;
  profile.memory.cache_bytes_per_clock = 400;  // 4 TB/s.
  Kernel kernel;
  kernel.read_bytes = 8'000'000;
  CHECK(microseconds(kernel, profile, gpu) == Approx(2));
  kernel.read_bytes = 12'500'000;  // A quarter too large: least-recently-used loses everything.
  CHECK(microseconds(kernel, profile, gpu) == Approx(12.5));
}

TEST_CASE("clocks slow down with dense work, not with streams", "[kernels]") {
  Profile profile;
  profile.sustained_slowdown = 1.2;
  profile.throttle_s = 10e-3;
  const Kernel dense = matmul(4096, 4096, 4096);
  const double at_once = kernel_seconds(dense, ten_sms(), profile, 0);
  CHECK(kernel_seconds(dense, ten_sms(), profile, 10e-3) == Approx(1.1 * at_once));
  CHECK(kernel_seconds(dense, ten_sms(), profile) == Approx(1.2 * at_once));
  Kernel stream;
  stream.read_bytes = 1'000'000'000;
  CHECK(kernel_seconds(stream, ten_sms(), profile) == kernel_seconds(stream, ten_sms(), profile, 0));
}

TEST_CASE("more work never takes less time, and no kernel beats its bounds", "[kernels]") {
  const GpuType gpu = catalogue_gpu("h100-sxm").value();
  const Profile profile = default_profile(gpu);
  for (const std::int64_t n : {64, 512, 1000, 4096, 12288}) {
    double last = 0;
    for (const std::int64_t m : {16, 64, 200, 256, 1024, 4096, 4352, 16384}) {
      const Kernel kernel = matmul(m, n, 4096);
      const double seconds = kernel_seconds(kernel, gpu, profile);
      INFO(m << " x " << n);
      CHECK(seconds >= last);
      CHECK(seconds > kernel.flops / gpu.peak(DType::kBf16));
      last = seconds;
    }
  }
}

TEST_CASE("an interval holds 90 % of both kinds of error", "[kernels]") {
  // hypot(0.3, 0.4) = 0.5: a factor of exp(1.645 · 0.5) each way.
  const TimeInterval interval = kernel_interval(1, {0.3, 0.4});
  CHECK(interval.upper_s == Approx(std::exp(0.8225)));
  CHECK(interval.lower_s == Approx(std::exp(-0.8225)));
  const TimeInterval exact = kernel_interval(2, {});
  CHECK(exact.lower_s == 2);
  CHECK(exact.upper_s == 2);
}

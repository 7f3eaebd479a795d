// Fits of a host's costs to times that are known.
#include "calibration/host_fit.hpp"

#include <catch2/catch.hpp>

#include "calibration/host_sweep.hpp"

namespace orrery {
namespace {

// 2 us + flops at 50 GFLOP/s + bytes at 8 GB/s.
TimedKernel timed(const std::string& label, double flops, std::int64_t bytes, double slower = 1) {
  TimedKernel kernel;
  kernel.label = label;
  kernel.kernel.kind = KernelKind::kMatmul;
  kernel.kernel.flops = flops;
  kernel.kernel.read_bytes = bytes;
  const double seconds = slower * (2e-6 + flops / 50e9 + static_cast<double>(bytes) / 8e9);
  kernel.seconds = {seconds, 0.99 * seconds, 40 * seconds, 1.01 * seconds, seconds};  // One was interrupted.
  return kernel;
}

const KernelFit* fit_of(const Profile& profile, const std::string& label) {
  for (const KernelFit& fit : profile.kernel_fits) {
    if (fit.label == label) return &fit;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("fits find the costs that times were made of", "[calibration]") {
  HostMeasurements measured;
  measured.machine = "a machine";
  measured.instruction_s = 3e-7;
  measured.cores = 4;
  measured.cores_together = 3.1;
  for (const double flops : {1e5, 1e6, 1e7, 3e7}) {
    for (const std::int64_t bytes : {1000, 100'000, 2'000'000})
      measured.kernels.push_back(timed("qkv", flops, bytes));
  }
  measured.kernels.push_back(timed("rare", 1e6, 1000, 3));  // One shape is no fit.
  for (const double bytes : {1e3, 1e4, 1e6}) {
    measured.transfers.push_back({"message", 2, bytes, {1e-6 + bytes / 4e9}});
    measured.transfers.push_back({"all-reduce", 2, bytes, {3e-6 + bytes / 2e9}});
  }
  const HostFit fit = fit_host(measured);
  const Profile& profile = fit.profile;
  REQUIRE(fit_of(profile, "qkv") != nullptr);
  CHECK(fit_of(profile, "qkv")->base_s == Approx(2e-6).epsilon(1e-6));
  CHECK(fit_of(profile, "qkv")->flops_per_s == Approx(50e9).epsilon(1e-6));
  CHECK(fit_of(profile, "qkv")->bytes_per_s == Approx(8e9).epsilon(1e-6));
  CHECK(fit_of(profile, "rare") == nullptr);
  CHECK(fit_of(profile, "") != nullptr);  // Of all matmuls.
  CHECK(profile.kernels.size() == 13);
  CHECK(profile.kernels.front().seconds == Approx(2e-6 + 1e5 / 50e9 + 1000 / 8e9));  // The median.
  REQUIRE(profile.message_fit);
  CHECK(profile.message_fit->seconds_per_byte == Approx(1 / 4e9).epsilon(1e-6));
  REQUIRE(profile.collective_fits.size() == 1);
  CHECK(profile.collective_fits.front().base_s == Approx(3e-6).epsilon(1e-6));
  CHECK(profile.cores_together == 3.1);
  CHECK(profile.instruction_s == 3e-7);
  for (const FitError& error : fit.errors) CHECK(error.median < 1e-9);
}

TEST_CASE("a term that only costs less than nothing is left out", "[calibration]") {
  HostMeasurements measured;
  for (const double bytes : {1e3, 2e3, 4e3, 8e3}) {
    measured.transfers.push_back({"message", 2, bytes, {1e-6 + 1e-10 * (8e3 - bytes)}});  // Falls.
  }
  const HostFit fit = fit_host(measured);
  REQUIRE(fit.profile.message_fit);
  CHECK(fit.profile.message_fit->seconds_per_byte == 0);
  CHECK(fit.profile.message_fit->base_s == Approx(1.4e-6).epsilon(0.1));
}

TEST_CASE("what is timed are sound Programs", "[calibration]") {
  for (const ComputeSweep& sweep : general_sweeps()) {
    INFO(sweep.name);
    CHECK(verify(sweep.program).empty());
    CHECK(verify(sweep.graph).empty());
    CHECK(!sweep.ranks.empty());
  }
  for (const TransferSweep& sweep : transfer_sweeps(4)) {
    INFO(sweep.kind << " of " << sweep.ranks);
    const std::vector<std::string> faults = verify(sweep.program);
    for (const std::string& fault : faults) UNSCOPED_INFO(fault);
    CHECK(faults.empty());
    CHECK(sweep.program.world_size() == sweep.ranks);
  }
}

}  // namespace orrery

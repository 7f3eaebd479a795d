#include "calibration/collective_calibration.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "calibration/collective_validation.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;

namespace {

std::vector<CollectiveMeasurement> sweep(CollectiveKind kind, const Router& router, const Profile& truth) {
  std::vector<CollectiveMeasurement> measurements;
  for (std::int64_t bytes = 1 << 10; bytes <= 1 << 30; bytes *= 4) {
    CollectiveMeasurement one{kind, bytes, 0, std::vector<std::int32_t>(8)};
    std::iota(one.devices.begin(), one.devices.end(), 0);
    one.time_s = predicted_seconds(one, router, truth);
    measurements.push_back(std::move(one));
  }
  return measurements;
}

double worst(const std::vector<CollectiveMeasurement>& measurements, const Router& router,
             const Profile& profile) {
  double most = 0;
  for (const CollectiveMeasurement& one : measurements)
    most = std::max(most, std::abs(predicted_seconds(one, router, profile) / one.time_s - 1));
  return most;
}

}  // namespace

TEST_CASE("one sweep calibrates the machine's other collectives", "[calibration]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 1);
  const Router router(cluster);
  const Profile start = default_profile(cluster.node.gpu);
  Profile truth = start;  // Bytes a quarter slower, calls at 6 us for 2, no NVLS.
  truth.collectives.slowdown = 1.25;
  truth.collectives.call_s = 6e-6;
  truth.collectives.nvls = false;

  const auto reduced = sweep(CollectiveKind::kAllReduce, router, truth),
             gathered = sweep(CollectiveKind::kAllGather, router, truth);
  CHECK(worst(gathered, router, start) > 0.15);
  const CollectiveCalibration found = calibrate_collectives(reduced, router, start);
  CHECK(found.median_error_after < 0.01);
  CHECK(found.median_error_before > 0.1);
  CHECK_FALSE(found.profile.collectives.nvls);
  CHECK(found.profile.collectives.slowdown == Approx(1.25).epsilon(0.02));
  CHECK(found.profile.collectives.call_s == Approx(6e-6).epsilon(0.05));
  CHECK(worst(gathered, router, found.profile) < 0.02);
  CHECK(found.profile.provenance.back().find("NVLS not used") != std::string::npos);
}

TEST_CASE("a machine as believed stays as it is", "[calibration]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 1);
  const Router router(cluster);
  const Profile start = default_profile(cluster.node.gpu);
  const CollectiveCalibration found =
      calibrate_collectives(sweep(CollectiveKind::kAllReduce, router, start), router, start);
  CHECK(found.profile.collectives.nvls);
  CHECK(found.profile.collectives.slowdown == Approx(1).epsilon(1e-3));
}

TEST_CASE("a sweep of two sizes is refused", "[calibration]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 1);
  const Router router(cluster);
  auto few = sweep(CollectiveKind::kAllReduce, router, Profile());
  few.resize(2);
  CHECK_THROWS_WITH(calibrate_collectives(few, router, Profile()), Catch::Contains("at least three"));
}

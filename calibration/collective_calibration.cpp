#include "calibration/collective_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "calibration/least_squares.hpp"
#include "simulator/collective_time.hpp"

namespace orrery {
namespace {

// A figure that is e times the start's counts as much as one measurement that is 5 % off.
constexpr double kPull = 0.05;
// What a call costs is fitted with this added, so that it may come down to nothing.
constexpr double kLeastCall = 1e-7;
constexpr double kLeastRamp = 1e-3;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Call, slowdown, ramp.
std::vector<double> figures(const Profile& profile) {
  const CollectiveCosts& costs = profile.collectives;
  return {costs.call_s + kLeastCall, costs.slowdown, costs.ramp + kLeastRamp};
}

// All-to-alls have a call's cost of their own (collective_base_s), which moves along.
Profile with(const Profile& start, const std::vector<double>& values, bool nvls) {
  Profile profile = start;
  CollectiveCosts& costs = profile.collectives;
  costs.nvls = nvls;
  costs.call_s = values[0] - kLeastCall;
  costs.slowdown = values[1];
  costs.ramp = values[2] - kLeastRamp;
  profile.collective_base_s =
      std::max(kLeastCall, start.collective_base_s + costs.call_s - start.collectives.call_s);
  return profile;
}

class Fit {
 public:
  Fit(std::span<const CollectiveMeasurement> sweep, const Router& router, const Profile& start)
      : sweep_(sweep), router_(router), start_(start) {}

  Profile run(bool nvls) const {
    const std::vector<double> begin = figures(start_);
    const Residuals residuals = [&](const std::vector<double>& values) {
      std::vector<double> all = errors(with(start_, values, nvls));
      for (std::size_t i = 0; i < values.size(); ++i) all.push_back(kPull * std::log(values[i] / begin[i]));
      return all;
    };
    return with(start_, fit_positive(begin, residuals), nvls);
  }

  // ln(predicted / measured).
  std::vector<double> errors(const Profile& profile) const {
    std::vector<double> all;
    for (const CollectiveMeasurement& one : sweep_)
      all.push_back(std::log(predicted_seconds(one, router_, profile) / one.time_s));
    return all;
  }

  double median_error(const Profile& profile) const {
    std::vector<double> all = errors(profile);
    for (double& error : all) error = std::abs(std::exp(error) - 1);
    return median(std::move(all));
  }

  double sum(const Profile& profile) const {
    double total = 0;
    for (const double error : errors(profile)) total += std::min(std::abs(error), 1.0);
    return total;
  }

 private:
  std::span<const CollectiveMeasurement> sweep_;
  const Router& router_;
  const Profile& start_;
};

}  // namespace

double predicted_seconds(const CollectiveMeasurement& measurement, const Router& router,
                         const Profile& profile) {
  return collective_alone(measurement.kind, measurement.bytes, measurement.devices, router, profile)
      .seconds();
}

CollectiveCalibration calibrate_collectives(std::span<const CollectiveMeasurement> sweep,
                                            const Router& router, const Profile& start) {
  if (sweep.size() < 3)
    fail(ErrorKind::kInput,
         "calibrating collectives: {} measurements; expected a sweep of at least three sizes", sweep.size());
  const Fit fit(sweep, router, start);
  CollectiveCalibration result;
  result.median_error_before = fit.median_error(start);
  result.profile = fit.run(start.collectives.nvls);
  if (start.collectives.nvls) {
    Profile without = fit.run(false);
    if (fit.sum(without) < fit.sum(result.profile)) result.profile = std::move(without);
  }
  result.median_error_after = fit.median_error(result.profile);
  const CollectiveCosts& costs = result.profile.collectives;
  result.profile.provenance.push_back(fmt::format(
      "collectives: call {:.3g} us, {:.3g} times slower than NCCL's model, ramp {:.3g}, NVLS {}: fitted to "
      "{} "
      "measurements of this machine",
      costs.call_s * 1e6, costs.slowdown, costs.ramp, costs.nvls ? "used" : "not used", sweep.size()));
  return result;
}

}  // namespace orrery

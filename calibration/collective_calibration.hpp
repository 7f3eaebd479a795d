#pragma once
// A machine's collectives from one sweep of sizes: what it measured corrects the Profile, which then predicts
// the machine's other collectives.

#include <cstdint>
#include <span>
#include <vector>

#include "model/program.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct CollectiveMeasurement {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int64_t bytes = 0;  // nccl-tests' size.
  double time_s = 0;
  std::vector<std::int32_t> devices;  // GPUs of the cluster.
};

struct CollectiveCalibration {
  Profile profile;  // `start` with other collectives; its provenance says so.
  double median_error_before = 0, median_error_after = 0;  // |predicted / measured − 1| of the sweep.
};

// Fits three figures of Profile::collectives by robust least squares of ln(predicted / measured): what a call
// costs, how much slower bytes move than NCCL's model says, and how that grows as a channel's share shrinks;
// each pulled a little towards `start`, so that a sweep that says nothing of one leaves it. Fitted once with
// and once without NVLS where the start has it, as tables seldom say whether it was on: the better one
// counts. REQUIRES: measurements of two or more devices, with positive times. THROWS Error(kInput) for fewer
// than three.
CollectiveCalibration calibrate_collectives(std::span<const CollectiveMeasurement> sweep,
                                            const Router& router, const Profile& start);

double predicted_seconds(const CollectiveMeasurement& measurement, const Router& router,
                         const Profile& profile);

}  // namespace orrery

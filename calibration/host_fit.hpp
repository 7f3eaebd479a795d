#pragma once
// A Profile of one machine's processors from what was timed there: every kernel of the shapes that were
// timed, fits for other shapes, messages, collectives, the runtime's own share.

#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct TimedKernel {
  std::string label;
  Kernel kernel;
  std::vector<double> seconds;
};

// From the last rank's arrival to the end on the slowest.
struct TimedTransfer {
  std::string kind;  // "message", or of to_string(CollectiveKind).
  std::int32_t ranks = 2;
  double bytes = 0;
  std::vector<double> seconds;
};

struct HostMeasurements {
  std::vector<TimedKernel> kernels;
  std::vector<TimedTransfer> transfers;
  double instruction_s = 0;  // What the runtime adds to each instruction.
  std::int32_t cores = 1;
  double cores_together = 1;  // Work that all cores do at once, in that of one alone.
  std::string machine;        // For provenance: "Intel Xeon …, 2 cores, 2026-12-01".
};

// How far the fits are off where they weren't fitted: each point against the fit of all others of its label.
struct FitError {
  std::string what;  // Label, or kind of transfer.
  std::int64_t points = 0;
  double median = 0;  // Of |predicted / measured − 1|.
};

struct HostFit {
  Profile profile;
  std::vector<FitError> errors;  // Largest first.
};

// Non-negative least squares of relative errors: base + flops / rate + bytes / bandwidth for each label and
// for each kind of kernel, base + bytes · seconds per byte for each kind of transfer and number of ranks.
// Times are medians of what was timed. Where a label was timed at fewer than three shapes its kind's fit has
// to do.
HostFit fit_host(const HostMeasurements& measurements);

}  // namespace orrery

#pragma once
// The whole twin against published training steps: each row becomes a model, a cluster and a plan, goes the
// same way as a scenario (expand, lower, make_job, run_fast) and is held against its measured step time.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "calibration/validation.hpp"

namespace orrery {

struct TrainingOptions {
  int threads = 1;  // Rows are predicted side by side; the report doesn't depend on it.
  // Told from time to time how many rows are done; called by one thread at a time.
  std::function<void(std::size_t done, std::size_t all)> progress;
};

// THROWS Error(kInput) naming file and line for a file that isn't such a table. Rows that can't be expressed
// are refused with their reason, never predicted as something else.
ValidationReport validate_training(const std::filesystem::path& file, const TrainingOptions& options = {});

}  // namespace orrery

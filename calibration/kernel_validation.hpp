#pragma once
// The kernel model against published kernel times.

#include <filesystem>

#include "calibration/validation.hpp"

namespace orrery {

// Reads a table of published kernel times (columns id, source, gpu, kernel, dtype, shape_json, tflops,
// time_us, notes; either of the two measures may be empty) and predicts every row that the model can express.
// THROWS Error(kInput) for a file that isn't such a table.
ValidationReport validate_kernels(const std::filesystem::path& file);

}  // namespace orrery

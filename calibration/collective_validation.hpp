#pragma once
// The collective model against published measurements of NCCL.

#include <filesystem>

#include "calibration/validation.hpp"

namespace orrery {

// Reads a table of published collectives (columns id, source, gpu, nodes, gpus, interconnect, collective,
// size_bytes, time_us, notes) and predicts every row whose machine and collective are known. Families are
// collective × inside a node or across × from 1 MiB or below.
// THROWS Error(kInput) for a file that isn't such a table.
ValidationReport validate_collectives(const std::filesystem::path& file);

// Every collective of a machine of which a sweep of another collective was published too, from 1 MiB on,
// predicted after calibrating on that sweep alone (calibrate_collectives). Families are "COLLECTIVE of GPUS
// from FITTED"; publishers stand for sources. THROWS like validate_collectives.
ValidationReport validate_calibrated_collectives(const std::filesystem::path& file);

}  // namespace orrery

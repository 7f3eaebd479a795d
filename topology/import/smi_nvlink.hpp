#pragma once
// NVLinks that are missing: a GPU without any among GPUs that all have them, or with fewer than its peers.

#include <vector>

#include "topology/import/smi_matrix.hpp"

namespace orrery {

// Most links that a row of the matrix shows to one peer: with NVSwitches, the GPU's own number of links.
std::int32_t most_nvlinks(const SmiMatrix& matrix, std::size_t gpu);

// One note per GPU or pair that differs from all others. Nothing is said of machines where NVLinks join pairs
// or rings only: there a GPU without them may be as built.
std::vector<ImportNote> smi_nvlink_faults(const SmiMatrix& matrix);

}  // namespace orrery

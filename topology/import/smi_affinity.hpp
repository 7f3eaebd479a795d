#pragma once
// The columns behind the matrix: which CPUs and NUMA nodes are near a GPU. nvidia-smi itself glues them
// together or leaves them blank at times; a list that may be cut or glued is not taken.

#include <vector>

#include "topology/import/smi_rows.hpp"

namespace orrery {

// Fills the affinities of `devices` from the rows of `table`.
void read_smi_affinities(const SmiTable& table, std::vector<SmiDevice>& devices,
                         std::vector<ImportNote>& notes);

}  // namespace orrery

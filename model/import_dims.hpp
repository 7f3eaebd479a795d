#pragma once
// Which dimensions of an imported graph's tensors are one dimension.

#include <vector>

#include "model/graph.hpp"

namespace orrery {

// REQUIRES: each dimension of each tensor is one of its own. Merges those that the ops say are the same,
// unless a matrix product needs them apart: x + W·x with a square W keeps the two sides of W apart, and
// that sum is then one over sizes only.
void merge_imported_dims(Graph& graph);

}  // namespace orrery

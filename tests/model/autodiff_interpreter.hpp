#pragma once
// Runs a whole Graph on doubles, for models of a few hundred weights. The meaning of
// each op written down independently of autodiff, so that its gradients can be compared with
// differences of the loss.

#include <cstdint>
#include <vector>

#include "model/graph.hpp"

namespace orrery::test {

using Values = std::vector<std::vector<double>>;  // By tensor, row-major; gradients start as zero.

// Tokens, labels, weights and buffers filled from a seed, everything else zero.
Values initial_values(const Graph& graph, const Sizes& sizes, std::uint64_t seed);

// Runs the ops of one phase. Ids and labels are whole numbers in double.
void run_phase(const Graph& graph, const Sizes& sizes, Phase phase, Values& values);

}  // namespace orrery::test

#pragma once
// The trained state of a rank: what it begins with, and a hash of it. Both go by the element's place in the
// whole tensor, so that they don't depend on how tensors are divided over ranks.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "executor/runtime/bound.hpp"
#include "executor/runtime/tables.hpp"

namespace orrery::host {

struct InitialState {
  std::uint64_t seed = 0;
  double deviation = 0.02;  // Of matrices and tables (GPT-2's). Norms begin with 1, biases and sinks with 0.
};

// The value that an element begins with: a sum of eight uniform 16-bit numbers, scaled to this standard
// deviation. Whole-number arithmetic, so any machine draws the same.
float initial_value(std::uint64_t seed, std::string_view tensor, std::int64_t element, double deviation);

// Neighbouring elements of a parameter, and where they stand in the whole tensor.
struct ParameterRun {
  TensorView view;
  std::uint64_t name = 0;  // Hash of the tensor's.
  std::int64_t first = 0;
  bool drawn = true;  // By initial_value; else all begin with `constant`.
  float constant = 0;
};
// Those that the rank holds; `counted`: only those that it counts in the model's hash.
std::vector<ParameterRun> parameter_runs(Tables& tables, RankId rank, bool counted);
// What initial_value mixes an element's place with, and what its sum is scaled by.
std::uint64_t initial_key(std::uint64_t seed, std::uint64_t name);
double initial_scale(double deviation);

// Fills the rank's parameters and master weights; moments begin with zero. REQUIRES: the World's memory is
// zero.
void initialize(Tables& tables, BoundRank& rank, const InitialState& initial);

// Over all elements of the parameters that this rank counts, 128 bits in all: a sum of each one's hash, so
// that the ranks' hashes add up to that of the model.
std::array<std::uint64_t, 2> parameter_hash(Tables& tables, RankId rank);

}  // namespace orrery::host

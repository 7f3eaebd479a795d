#pragma once
// The trained state of a rank: what it begins with, and a hash of it. Both go by the element's place in the
// whole tensor, so that they don't depend on how tensors are divided over ranks.

#include <array>
#include <cstdint>

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

// Fills the rank's parameters and master weights; moments begin with zero. REQUIRES: the World's memory is
// zero.
void initialize(Tables& tables, BoundRank& rank, const InitialState& initial);

// Over all elements of the parameters that this rank counts, 128 bits in all: a sum of each one's hash, so
// that the ranks' hashes add up to that of the model.
std::array<std::uint64_t, 2> parameter_hash(Tables& tables, RankId rank);

}  // namespace orrery::host

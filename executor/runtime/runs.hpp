#pragma once
// Which stretches of memory move when a tensor, or a part of it, goes from one division to another. What
// collectives and pieces copy is worked out once, when a Program is bound to its ranks, and is a list of
// these.

#include <cstdint>
#include <vector>

#include "executor/host/shard.hpp"

namespace orrery::host {

// Elements, counted in two row-major arrays.
struct Run {
  std::int64_t to = 0, from = 0, count = 0;
  bool operator==(const Run&) const = default;
};

// The elements of `to` that `from` has too, in ascending order of `to`; stretches as long as both arrays
// allow. REQUIRES: parts of one tensor; no index twice in one dimension.
std::vector<Run> runs_between(const Shard& to, const Shard& from);

// Elements of all runs.
std::int64_t count(const std::vector<Run>& runs);

// The tensor as a whole, without the padding that divided dimensions may have.
Shard whole(const Graph& graph, const Program& program, TensorId tensor);

}  // namespace orrery::host

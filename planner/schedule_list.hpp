#pragma once
// The list scheduler: orders found by playing the pipeline through with given stage times, under a cap on the
// activations each rank holds. Each rank takes, whenever it is free, the best pass that can start; rules
// differ in what "best" means (three of them, six with split backwards), and the rule with the shortest
// makespan counts (then the one with the lower peak, then the first; the search ends where makespan_bound is
// reached). As in sail-sg's scheduler/zb.py and zbv.py, which search a few rules in the same way.

#include <cstdint>
#include <vector>

#include "planner/pipeline_schedule.hpp"

namespace orrery {

struct ListRule {
  // What goes first when both a forward and a backward can start; in turns: what wasn't done last. Where a
  // forward goes first and only the cap is in its way, a waiting weight part makes room.
  enum class First : std::uint8_t { kBackward, kTurns, kForward } first = First::kBackward;
  bool weight_in_gaps = true;  // A weight part only where it ends before the next known arrival, or where
                               // memory is full; else whenever neither a forward nor a backward can start.
  bool operator==(const ListRule&) const = default;
};

// One order by one rule. A forward is admitted only while all micro-batches in flight could still be finished
// one after another, oldest first, so no order runs out of memory half-way. REQUIRES: memory_cap ≥ chunks;
// times, where given, for every virtual stage.
std::vector<std::vector<Pass>> list_orders(const Schedule& stages, const StageTimes& times,
                                           const ListRule& rule);

// The best over all rules, with the shape's times. `stages` has places but no passes (place_stages).
std::vector<std::vector<Pass>> list_orders(const Schedule& stages);

}  // namespace orrery

#pragma once
// `recompute: auto`: the cheapest set of tensors to recompute that makes a plan fit the memory.

#include <cstdint>
#include <string>

#include "model/graph.hpp"
#include "planner/plan.hpp"

namespace orrery {

struct Cluster;
struct Profile;

struct RecomputeChoice {
  Plan plan;  // With what was chosen in place of kAuto.
  // The fullest role's peak with nothing recomputed and as chosen, and what was allowed.
  std::int64_t bytes_before = 0, bytes_after = 0, limit_bytes = 0;
  // What the recomputation takes a step of the role that was fullest, collectives included, if nothing hides
  // it.
  double recompute_s = 0;
  std::string text() const;  // One line for people.
};

// Considers every subset of the (at most twelve largest) things that ops of a layer make for the backward.
// Its cost is the time of all ops that have to run again, its gain the bytes no longer kept; of those that no
// other beats in both, the cheapest whose Program fits is found by bisection, each trial lowered and
// measured. Any other plan comes back as it is. THROWS Error(kInfeasible) when recomputing everything doesn't
// suffice.
RecomputeChoice choose_recompute(const Plan& plan, const Graph& graph, const Cluster& cluster,
                                 const Profile& profile, int threads = 1);

}  // namespace orrery

#pragma once
// Faults drawn from rates: a Poisson process for each kind of part, repairs that take an exponential time.

#include <cstdint>
#include <vector>

#include "simulator/job.hpp"
#include "topology/cluster.hpp"

namespace orrery {

struct FaultRate {
  Fault::What what = Fault::What::kGpu;
  double per_hour = 0;  // And part: GPU, network card in use, GPU's NVLinks, node, leaf switch.
  double repair_s = 0;  // Mean; a link that flaps is a network card with a short one. 0: never.
  double factor = 0;    // What is left meanwhile.
  bool operator==(const FaultRate&) const = default;
};

struct RandomFaults {
  std::uint64_t seed = 1;
  std::int32_t steps = 0;  // Undisturbed ones during which faults come.
  std::vector<FaultRate> rates;
};

// Parts of a kind that a cluster has, each named by its first rank.
std::vector<RankId> parts_of(Fault::What what, const Router& router);

// Those that begin before `horizon`, by kind, then by time; the same for the same seed, and those of a kind
// don't depend on the other kinds. What is being repaired doesn't fail again. Dates are whole microseconds.
// THROWS Error(kInput) for a kind of which the cluster has none.
std::vector<Fault> draw_faults(const RandomFaults& random, const Router& router, SimTime horizon);

}  // namespace orrery

#pragma once
// The faults of JobOptions as what they do to ranks and links over time.

#include <compare>
#include <cstdint>
#include <vector>

#include "simulator/job.hpp"
#include "simulator/link_paths.hpp"

namespace orrery::folding {

struct Phase {
  SimTime from;
  double factor = 1;
  auto operator<=>(const Phase&) const = default;
};
// From each phase's beginning until the next one's; at first 1. Things with equal courses are alike.
using Course = std::vector<Phase>;

struct FaultPlan {
  std::vector<Course> of_rank;  // By rank; empty without faults of GPUs.
  std::vector<NarrowedLink> links;
  std::vector<Course> of_link;  // Parallel to links.
};

// The links that a fault of this device (and its peer; −1: none) narrows, each once; none of a GPU alone.
// THROWS Error(kInput) when there are none.
std::vector<NarrowedLink> links_of(const Router& router, const Fault& fault, std::int32_t device,
                                   std::int32_t peer);

// Faults of one thing that overlap multiply. THROWS Error(kInput) for a rank or a part that isn't there, or
// times and factors that can't be.
FaultPlan plan_faults(const Program& program, const Router& router, const JobOptions& options);

}  // namespace orrery::folding

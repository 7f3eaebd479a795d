#pragma once
// What the size of gradient buckets does to a step: one simulation for each size, and the share of the step
// in which a GPU computes nothing. Small buckets start early and pay for their starts; large ones wait for
// the last of their gradients.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "simulator/job.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct BucketRow {
  std::int64_t asked_bytes = 0;                  // Plan::bucket_bytes.
  std::int32_t buckets = 0;                      // Of the rank that has most.
  std::int64_t least_bytes = 0, most_bytes = 0;  // Payload of its collectives.
  std::int32_t aligned = 0;                      // How many of them are whole multiples of kBucketGrain.
  double step_s = 0;
  double idle = 0;     // Share of the step in which a rank computes nothing, mean over ranks.
  double exposed = 0;  // Share in which gradients are waited for.
};

inline constexpr std::int64_t kBucketGrain = 256 << 10;

// THROWS Error(kInfeasible) as lower() and the engine do.
std::vector<BucketRow> study_buckets(const Graph& graph, const Plan& plan, const Cluster& cluster,
                                     const Profile& profile, std::span<const std::int64_t> sizes,
                                     const JobOptions& options = {});

std::string to_table(std::span<const BucketRow> rows);
std::string to_json(std::span<const BucketRow> rows);  // A list.

}  // namespace orrery

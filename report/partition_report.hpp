#pragma once
// What placements of single ops come to, side by side: the table and the JSON of `orrery partition`.

#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "model/timeline.hpp"
#include "planner/partition.hpp"
#include "planner/partition_problem.hpp"
#include "report/link_traffic.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

struct PartitionRow {
  PartitionStrategy strategy = PartitionStrategy::kPerLayer;
  PieceLimits limits;   // Of kNvLinkNeighbourhood.
  std::string refused;  // Why no partition keeps the limits; everything below is then 0.
  std::int32_t pieces = 0, smallest_piece = 0, largest_piece = 0;
  std::int32_t devices = 0;     // In use.
  std::int32_t candidates = 0;  // Partitions that were timed before this one was taken.
  double step_time_s = 0;
  double makespan_s = 0;
  LinkTraffic links;
  double compute_fraction = 0;         // Of the step, mean over all devices of the cluster.
  double compute_balance = 0;          // That mean over the busiest device's: 1 where all do as much.
  std::int64_t peak_memory_bytes = 0;  // Of the fullest device.
  bool fits = true;                    // Into the GPU's memory.
};

// REQUIRES: the Program of this partition and its Timeline, not folded.
PartitionRow summarize(const PartitionProblem& problem, PartitionStrategy strategy, const PieceLimits& limits,
                       const Partition& partition, const Program& program, const Timeline& timeline);

// A line per row, with the meaning of the columns below.
std::string to_table(const std::vector<PartitionRow>& rows, const Scenario& scenario,
                     const PartitionProblem& problem);
// One object; docs/user-guide/partitions.md has its keys. Keys are only ever added.
std::string to_json(const std::vector<PartitionRow>& rows, const Scenario& scenario,
                    const PartitionProblem& problem);

}  // namespace orrery

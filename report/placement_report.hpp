#pragma once
// What placements of ranks come to, side by side: the table and the JSON of `orrery placement`.

#include <string>
#include <vector>

#include "planner/placement.hpp"
#include "planner/placement_cost.hpp"
#include "planner/placement_levels.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

struct PlacementRow {
  PlacementPolicy policy = PlacementPolicy::kLinear;
  HostBinding nic = HostBinding::kNearest, numa = HostBinding::kNearest;
  std::string refused;  // Why there is no such placement; everything below is then empty.
  RankPlacement placement;
  PlacementCost cost;
  std::vector<LevelTimes> levels;
  double step_time_s = 0, makespan_s = 0;
  std::int32_t rank_classes = 0;  // That the engine told apart.
};

// A line per row, with the meaning of the columns below.
std::string to_table(const std::vector<PlacementRow>& rows, const Scenario& scenario);
// One object; docs/user-guide/placement.md has its keys. Keys are only ever added.
std::string to_json(const std::vector<PlacementRow>& rows, const Scenario& scenario);

}  // namespace orrery

#pragma once
// What remapping policies come to under one list of faults, side by side: the table and the JSON of
// `orrery remap`.

#include <string>
#include <vector>

#include "planner/remap.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

// A line per policy, then what happened under each, with the meaning of the columns below.
std::string to_table(const std::vector<RemapRun>& runs, const Scenario& scenario);
// One object; docs/user-guide/faults.md has its keys. Keys are only ever added.
std::string to_json(const std::vector<RemapRun>& runs, const Scenario& scenario);

}  // namespace orrery

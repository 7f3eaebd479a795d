#pragma once
// The table and the JSON of `orrery fabric`.

#include <string>
#include <vector>

#include "scenarios/scenario.hpp"
#include "simulator/fabric_study.hpp"

namespace orrery {

std::string to_table(const std::vector<FabricRow>& rows, const std::vector<DepthRow>& depths,
                     const Scenario& scenario);
// One object; docs/user-guide/fabrics.md has its keys. Keys are only ever added.
std::string to_json(const std::vector<FabricRow>& rows, const std::vector<DepthRow>& depths,
                    const Scenario& scenario);

}  // namespace orrery

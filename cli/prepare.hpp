#pragma once
// Scenario file → checked plan: what every command that takes a scenario begins with.

#include <filesystem>
#include <string>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/plan.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

struct Prepared {
  Scenario scenario;
  Graph graph;
  Plan plan;
  std::vector<std::string> warnings;
};

// `place`: with the ranks on the GPUs that the file's placement gives them, else rank i on GPU i.
// THROWS Error: kInput from the file, kInfeasible from the plan (with the file's name in front).
Prepared prepare(const std::filesystem::path& file, const Overrides& overrides, bool place = true);

// Adds the scenario's random faults to its faults, over as many steps as it says, of the length that they
// have without any. REQUIRES: `program` is the plan's.
void draw_random_faults(Scenario& scenario, const Program& program);

}  // namespace orrery

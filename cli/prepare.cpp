#include "cli/prepare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "planner/recompute.hpp"
#include "planner/recompute_choice.hpp"
#include "simulator/engine.hpp"

namespace orrery {

Prepared prepare(const std::filesystem::path& file, const Overrides& overrides, bool place) {
  Prepared prepared;
  prepared.scenario = load_scenario(file, overrides);
  const Scenario& scenario = prepared.scenario;
  prepared.graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  const std::vector<std::string> unknown = recompute_faults(scenario.plan.settings, prepared.graph);
  if (!unknown.empty()) {
    fail(ErrorKind::kInput, "{}: {}", scenario.file.string(), fmt::join(unknown, "\n"));
  }
  try {
    prepared.plan = expand(scenario.plan, prepared.graph, scenario.cluster.gpu_count());
    if (prepared.plan.recompute == Recompute::kAuto) {
      RecomputeChoice choice =
          choose_recompute(prepared.plan, prepared.graph, scenario.cluster, scenario.profile);
      prepared.scenario.notes.push_back(choice.text());
      prepared.plan = std::move(choice.plan);
    }
    if (place) {
      prepared.plan =
          place_ranks(std::move(prepared.plan), prepared.graph, scenario.cluster, scenario.placement);
    }
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", scenario.file.string(), error.what()));
  }
  prepared.warnings = warnings(prepared.plan, prepared.graph, scenario.cluster);
  return prepared;
}

void draw_random_faults(Scenario& scenario, const Program& program) {
  const RandomFaults& random = scenario.random_faults;
  if (random.rates.empty()) return;
  JobOptions options;
  options.stragglers = scenario.stragglers;
  const Timeline undisturbed = simulate(program, scenario.cluster, scenario.profile, options);
  const std::vector<Fault> drawn =
      draw_faults(random, Router(scenario.cluster), random.steps * undisturbed.step_time);
  scenario.faults.insert(scenario.faults.end(), drawn.begin(), drawn.end());
  scenario.notes.push_back(fmt::format("{} random faults in {} steps of {}", drawn.size(), random.steps,
                                       format_time(undisturbed.step_time)));
}

}  // namespace orrery

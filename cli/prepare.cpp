#include "cli/prepare.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery {

Prepared prepare(const std::filesystem::path& file, const Overrides& overrides) {
  Prepared prepared;
  prepared.scenario = load_scenario(file, overrides);
  const Scenario& scenario = prepared.scenario;
  prepared.graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  try {
    prepared.plan = expand(scenario.plan, prepared.graph, scenario.cluster.gpu_count());
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", scenario.file.string(), error.what()));
  }
  prepared.warnings = warnings(prepared.plan, prepared.graph, scenario.cluster);
  return prepared;
}

}  // namespace orrery

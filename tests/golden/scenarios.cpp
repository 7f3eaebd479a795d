// What every scenario file predicts, to the picosecond: a change of any prediction shows as a change of
// scenarios.txt. `ORRERY_UPDATE_GOLDEN=1 build/test_golden` writes the file anew; the diff is for review.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "planner/recompute_choice.hpp"
#include "scenarios/scenario.hpp"
#include "simulator/engine.hpp"
#include "simulator/hang.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

std::string prediction(const fs::path& file, int threads) {
  const Scenario scenario = load_scenario(file);
  const Graph graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  const Plan plan = place_ranks(choose_recompute(expand(scenario.plan, graph, scenario.cluster.gpu_count()),
                                                 graph, scenario.cluster, scenario.profile)
                                    .plan,
                                graph, scenario.cluster, scenario.placement);
  const Program program = lower(graph, plan, threads);
  JobOptions options;
  options.fold = scenario.fold;
  options.stragglers = scenario.stragglers;
  options.faults = scenario.faults;
  options.watchdog = scenario.watchdog;
  Timeline timeline;
  try {
    timeline = simulate(program, scenario.cluster, scenario.profile, options);
  } catch (const HangError& error) {
    return fmt::format("{}: {}\n", scenario.name, error.what());
  }
  std::int64_t peak = 0;
  for (const Role& role : program.roles) peak = std::max(peak, peak_memory(role).bytes);
  return fmt::format("{}: step {} ps, alone {} ps, peak {} B, {} roles, {} classes, {} spans\n",
                     scenario.name, timeline.step_time.picoseconds, timeline.makespan.picoseconds, peak,
                     program.roles.size(), timeline.classes.size(), timeline.spans.size());
}

std::string all_predictions(int threads) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(ORRERY_SOURCE_DIR) / "scenarios")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) text += prediction(file, threads);
  return text;
}

}  // namespace

TEST_CASE("the scenario files predict what they did", "[golden]") {
  const fs::path golden = fs::path(ORRERY_SOURCE_DIR) / "tests" / "golden" / "scenarios.txt";
  const std::string predicted = all_predictions(1);
  if (std::getenv("ORRERY_UPDATE_GOLDEN") != nullptr) std::ofstream(golden) << predicted;
  std::stringstream kept;
  kept << std::ifstream(golden).rdbuf();
  CHECK(predicted == kept.str());
}

TEST_CASE("the number of threads doesn't show in a prediction", "[golden]") {
  const fs::path file = fs::path(ORRERY_SOURCE_DIR) / "scenarios" / "llama3-70b-512xh100.yaml";
  const std::string alone = prediction(file, 1);
  CHECK(prediction(file, 2) == alone);
  CHECK(prediction(file, 5) == alone);
}

}  // namespace orrery

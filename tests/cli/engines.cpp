// orrery simulate --engine, and faults.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

namespace {

double step_time(const std::string& arguments) {
  const Outcome outcome = run_orrery("simulate " + arguments + " --json -");
  CHECK(outcome.code == 0);
  return nlohmann::json::parse(outcome.out)["step_time_s"].get<double>();
}

}  // namespace

TEST_CASE("both engines run, agree, and say how far they are apart", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(2)).string();
  CHECK(step_time(file + " --engine simgrid") == Approx(step_time(file)).epsilon(1e-6));
  const Outcome both = run_orrery("simulate " + file + " --engine both");
  CHECK(both.code == 0);
  CHECK_THAT(both.out, Contains("engines: fast ") && Contains("simgrid ") && Contains("largest difference "));
  CHECK(both.err.empty());
  const Outcome taken = run_orrery("simulate " + file + " --set engine=both --json -");
  CHECK(taken.code == 0);
  CHECK(nlohmann::json::accept(taken.out));
  CHECK_THAT(taken.err, Contains("largest difference "));
}

TEST_CASE("engines that differ by more than the tolerance end with 6", "[cli]") {
  // Flows over the uplinks of a thin fabric share them, and the engines round the ends of shares differently.
  const Scratch scratch;
  const std::string file = scratch.write("thin.yaml", small_scenario(2) + "engine: both\n").string() +
                           " --set 'cluster.fabric={kind: fat-tree, nodes_per_leaf: 1, oversubscription: 7}'";
  CHECK(run_orrery("simulate " + file).code == 0);
  const Outcome strict = run_orrery("simulate " + file + " --engine-tolerance 0");
  CHECK(strict.code == 6);
  CHECK_THAT(strict.out,
             Contains("step time") && Contains("largest difference"));  // All is told all the same.
  CHECK_THAT(strict.err,
             Contains("thin.yaml: the engines differ by more than 0 of a step; rounding alone may "
                      "reach 1e-06"));
  // Where nothing is shared they agree to the picosecond: one group whose collectives follow one another.
  const std::string alone = scratch.write("alone.yaml", small_scenario(1)).string() +
                            " --set plan.dp=8 --set plan.tp=1 --set plan.pp=1";
  CHECK(run_orrery("simulate " + alone + " --engine both --engine-tolerance 0").code == 0);
  CHECK(run_orrery("simulate " + alone + " --engine-tolerance -1").code == 2);
}

TEST_CASE("faults slow the steps that they fall into", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(2)).string();
  const Outcome over = run_orrery(
      "simulate " + file + " --engine both --set 'faults=[{rank: 1, what: gpu, factor: 0.25, until: 5ms}]'");
  CHECK(over.code == 0);
  CHECK_THAT(over.out, Contains("steps with faults"));
  const Outcome figures = run_orrery(
      "simulate " + file + " --json - --set 'faults=[{rank: 1, what: gpu, factor: 0.25, until: 5ms}]'");
  const auto json = nlohmann::json::parse(figures.out);
  const auto steps = json["step_times_s"].get<std::vector<double>>();
  REQUIRE(steps.size() == json["steps"].get<std::size_t>());
  CHECK(steps[0] == json["makespan_s"].get<double>());
  CHECK(steps.back() == Approx(json["step_time_s"].get<double>()));
  CHECK(steps[0] > steps.back());
  CHECK(step_time(file + " --set 'faults=[{rank: 1, what: gpu, factor: 0.25}]'") > step_time(file));
  CHECK(step_time(file + " --set 'faults=[{rank: 1, what: gpu, factor: 0.25, until: 5ms}]'") ==
        step_time(file));
  const Outcome wrong =
      run_orrery("simulate " + file + " --set 'faults=[{rank: 1, what: fan, factor: 0.25}]'");
  CHECK(wrong.code == 3);
  CHECK_THAT(wrong.err, Contains("gpu"));
}

// orrery simulate --engine, and faults.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

namespace {

const std::string kSmall = R"(name: small
model: {hidden: 1024, layers: 4, heads: 8, ffn: 4096, vocab: 32000}
sequence: 1024
global_batch: 16
cluster: {node: dgx-h100, nodes: 2}
plan: {dp: 4, tp: 2, pp: 2}
)";

double step_time(const std::string& arguments) {
  const Outcome outcome = run_orrery("simulate " + arguments + " --json -");
  CHECK(outcome.code == 0);
  return nlohmann::json::parse(outcome.out)["step_time_s"].get<double>();
}

}  // namespace

TEST_CASE("both engines run, agree, and say how far they are apart", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", kSmall).string();
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

TEST_CASE("faults slow the steps that they fall into", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", kSmall).string();
  const Outcome over = run_orrery(
      "simulate " + file + " --engine both --set 'faults=[{rank: 1, what: gpu, factor: 0.25, until: 5ms}]'");
  CHECK(over.code == 0);
  CHECK_THAT(over.out, Contains("faults: steps took"));
  CHECK(step_time(file + " --set 'faults=[{rank: 1, what: gpu, factor: 0.25}]'") > step_time(file));
  CHECK(step_time(file + " --set 'faults=[{rank: 1, what: gpu, factor: 0.25, until: 5ms}]'") ==
        step_time(file));
  const Outcome wrong =
      run_orrery("simulate " + file + " --set 'faults=[{rank: 1, what: fan, factor: 0.25}]'");
  CHECK(wrong.code == 3);
  CHECK_THAT(wrong.err, Contains("gpu"));
}

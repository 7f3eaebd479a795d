// Exit codes and output of `orrery remap`, and of `orrery simulate` for what hangs.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

namespace {

const std::string kLost = " --set 'faults=[{rank: 8, what: node, factor: 0, from: 10ms}]'";

}  // namespace

TEST_CASE("policies stand side by side, as a table and as JSON", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(2)).string();
  const Outcome table = run_orrery("remap " + file + kLost);
  CHECK(table.code == 0);
  for (const char* policy : {"static", "re-ring", "re-group"}) CHECK_THAT(table.out, Contains(policy));
  CHECK_THAT(table.out, Contains("hangs in step"));
  const Outcome outcome = run_orrery("remap " + file + kLost + " --steps 20 --json -");
  CHECK(outcome.code == 0);
  const auto policies = nlohmann::json::parse(outcome.out)["policies"];
  REQUIRE(policies.size() == 3);
  CHECK(policies[0]["hang"]["until_s"].get<double>() > 600);
  CHECK(policies[0]["after_s"].is_null());
  CHECK(run_orrery("remap " + file + kLost + " --steps 20 --json -").out == outcome.out);
}

TEST_CASE("both engines see the same hang", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(2)).string();
  const Outcome fast = run_orrery("simulate " + file + kLost);
  CHECK(fast.code == 4);
  CHECK_THAT(fast.err, Contains("hangs in step") && Contains("lost: node of rank 8"));
  CHECK(run_orrery("simulate " + file + kLost + " --engine both").err == fast.err);
}

TEST_CASE("wrong use of remap ends with its exit codes", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(2)).string();
  CHECK(run_orrery("remap " + file).code == 3);  // No faults.
  CHECK(run_orrery("remap " + file + kLost + " --policy dynamic").code == 2);
  CHECK(run_orrery("remap " + file + kLost + " --steps 0").code == 2);
}

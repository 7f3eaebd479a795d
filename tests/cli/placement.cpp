// Exit codes and output of `orrery placement`.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

TEST_CASE("placements stand side by side, as a table and as JSON", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome table = run_orrery("placement " + file);
  CHECK(table.code == 0);
  for (const char* policy : {"linear", "round-robin-nodes", "round-robin-sockets", "graph"}) {
    CHECK_THAT(table.out, Contains(policy));
  }
  const Outcome outcome = run_orrery("placement " + file + " --policy graph --json -");
  CHECK(outcome.code == 0);
  const auto rows = nlohmann::json::parse(outcome.out)["placements"];
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["step_time_s"].get<double>() > 0);
  CHECK(rows[0]["cross_node_bytes"] == 0);
  CHECK(run_orrery("placement " + file + " --policy graph --json -").out == outcome.out);
  CHECK(run_orrery("placement " + file + " --policy by-name").code == 2);
}

TEST_CASE("a placement is written for launchers, and simulate takes it", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome ranks = run_orrery("placement " + file + " --policy linear --rankfile - --host gpu-7");
  CHECK(ranks.code == 0);
  CHECK_THAT(ranks.out, Contains("rank 1=gpu-7 slot=1"));
  CHECK_THAT(run_orrery("placement " + file + " --script -").out, Contains("CUDA_VISIBLE_DEVICES"));
  CHECK(run_orrery("simulate " + file + " --no-interval --set plan.placement.policy=graph").code == 0);
  CHECK(run_orrery("simulate " + file + " --set plan.placement.policy=anything").code == 3);
}

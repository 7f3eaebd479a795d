// `orrery memory`.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

TEST_CASE("memory shows the fullest role, a named one, or all", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome fullest = run_orrery("memory " + file);
  CHECK(fullest.code == 0);
  CHECK(fullest.err.empty());
  CHECK_THAT(fullest.out, Contains(" (ranks ") && Contains("activations") && Contains("memory plan") &&
                              Contains("caching") && Contains("The fullest of"));
  CHECK_THAT(run_orrery("memory " + file + " --role stage1").out, Contains("stage1 (ranks"));
  const Outcome all = run_orrery("memory " + file + " --all-roles");
  CHECK_THAT(all.out, Contains(" (ranks ") && Contains("stage1 (ranks"));
  const Outcome unknown = run_orrery("memory " + file + " --role stage9");
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("no such role") && Contains("did you mean"));
}

TEST_CASE("memory as JSON adds up", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome outcome = run_orrery("memory " + file + " --json - --offsets --all-roles");
  CHECK(outcome.code == 0);
  CHECK(run_orrery("memory " + file + " --json - --offsets --all-roles --threads 3").out == outcome.out);
  const json root = json::parse(outcome.out);
  const json simulated = json::parse(run_orrery("simulate " + file + " --json -").out);
  std::int64_t highest = 0;
  for (const json& role : root["roles"]) {
    const auto peak = role["peak_bytes"].get<std::int64_t>();
    highest = std::max(highest, peak);
    std::int64_t sum = 0, highest_of_course = 0;
    for (const auto& [category, bytes] : role["at_peak"].items()) sum += bytes.get<std::int64_t>();
    CHECK(sum == peak);
    for (const json& point : role["course"]) {
      std::int64_t bytes = 0;
      for (const auto& [category, part] : point.items()) bytes += part.get<std::int64_t>();
      highest_of_course = std::max(highest_of_course, bytes);
    }
    CHECK(highest_of_course == peak);
    const json& plan = role["plan"];
    CHECK(plan["arena_bytes"].get<std::int64_t>() >= plan["bound_bytes"].get<std::int64_t>());
    CHECK(plan["bound_bytes"].get<std::int64_t>() >= plan["issue_bytes"].get<std::int64_t>());
    CHECK(plan["issue_bytes"].get<std::int64_t>() >= peak);
    for (const json& place : role["offsets"]) {
      CHECK(place["offset"].get<std::int64_t>() + place["bytes"].get<std::int64_t>() <=
            plan["arena_bytes"].get<std::int64_t>());
    }
    REQUIRE(role["allocators"].size() == 3);
    CHECK(role["allocators"][2]["requests_per_step"] == 0);
    CHECK(role["allocators"][2]["first_device_calls"] == 1);
    CHECK(role["allocators"][0]["reserved_bytes"].get<std::int64_t>() >=
          role["allocators"][1]["reserved_bytes"].get<std::int64_t>());
  }
  CHECK(simulated["peak_memory_bytes"] == highest);
  CHECK(simulated["planned_memory_bytes"].get<std::int64_t>() >= highest);
}

TEST_CASE("a recompute name that says nothing is bad input", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome outcome = run_orrery("memory " + file + " --set 'plan.recompute=[norm1, mlp.gatde]'");
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.err, Contains("mlp.gatde") && Contains("did you mean"));
  CHECK(run_orrery("memory " + file + " --set 'plan.recompute=[norm1]'").code == 0);
  const Outcome too_little =
      run_orrery("memory " + file + " --set 'plan.recompute={what: auto, memory: 1MB}'");
  CHECK(too_little.code == 4);
  CHECK_THAT(too_little.err, Contains("plan.recompute: auto"));
}

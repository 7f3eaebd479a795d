// Exit codes and output of `orrery compare`.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

TEST_CASE("a prediction is compared with another of the same Program", "[cli]") {
  const Scratch scratch;
  const std::string scenario = scratch.write("small.yaml", small_scenario(1)).string();
  const std::string one = scratch.write("one.json", "").string(),
                    two = scratch.write("two.json", "").string();
  REQUIRE(run_orrery("simulate " + scenario + " --timeline " + one).code == 0);
  REQUIRE(
      run_orrery("simulate " + scenario + " --set profile.matmul_efficiency=0.2 --timeline " + two).code ==
      0);

  const Outcome same = run_orrery("compare " + one + " " + one + " --threshold 0");
  CHECK(same.code == 0);
  CHECK_THAT(same.out, Contains("+0.0 %") && Contains("100.0 % of the measured busy time"));

  const Outcome slower = run_orrery("compare " + one + " " + two + " --threshold 0.1");
  CHECK(slower.code == 6);
  CHECK_THAT(slower.out, Contains("by op, ms over all ranks") && Contains("by rank, ms"));
  CHECK_THAT(slower.err, Contains("more than the 10.0 % of --threshold"));
  const auto json = nlohmann::json::parse(run_orrery("compare " + one + " " + two + " --json -").out);
  CHECK(json["step"]["error"].get<double>() < -0.1);
  CHECK(json["unmatched"].empty());
}

TEST_CASE("files that can't be compared end with 3", "[cli]") {
  const Scratch scratch;
  const std::string scenario = scratch.write("small.yaml", small_scenario(1)).string();
  const std::string one = scratch.write("one.json", "").string(),
                    two = scratch.write("two.json", "").string();
  REQUIRE(run_orrery("simulate " + scenario + " --timeline " + one).code == 0);
  REQUIRE(run_orrery("simulate " + scenario + " --set sequence=512 --timeline " + two).code == 0);
  const Outcome other = run_orrery("compare " + one + " " + two);
  CHECK(other.code == 3);
  CHECK_THAT(other.err, Contains("different Programs"));
  const Outcome damaged = run_orrery("compare " + one + " " + scratch.write("bad.json", "{").string());
  CHECK(damaged.code == 3);
  CHECK_THAT(damaged.err, Contains("bad.json: isn't JSON"));
  CHECK(run_orrery("compare " + one + " nowhere.json").code == 3);
}

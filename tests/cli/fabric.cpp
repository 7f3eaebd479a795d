// Exit codes and output of `orrery fabric`.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

TEST_CASE("routings of a fabric stand side by side, as a table and as JSON", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(8)).string();
  const std::string fabric =
      " --set 'cluster.fabric={kind: fat-tree, nodes_per_leaf: 2}' --set 'traffic={seeds: 2}'";
  const Outcome table = run_orrery("fabric " + file + fabric);
  CHECK(table.code == 0);
  for (const char* word :
       {"ring", "permutation", "all-to-all", "adaptive", "ecmp", "feedback", "least depth"}) {
    CHECK_THAT(table.out, Contains(word));
  }
  const Outcome outcome = run_orrery("fabric " + file + fabric + " --json -");
  CHECK(outcome.code == 0);
  const auto json = nlohmann::json::parse(outcome.out);
  REQUIRE(json["rows"].size() == 9);
  for (const auto& row : json["rows"]) {
    CHECK(row["slowest_bytes_per_s"].get<double>() > 0);
    CHECK(row["slowest_bytes_per_s"].get<double>() <= row["mean_bytes_per_s"].get<double>() * 1.000001);
    if (row["routing"] == "adaptive") CHECK(row["slowest_bytes_per_s"].get<double>() == Approx(50e9));
  }
  CHECK(json["connections"].size() == 6);
  CHECK(run_orrery("fabric " + file + fabric + " --json -").out == outcome.out);
}

TEST_CASE("a cluster without a network has no fabric to look at", "[cli]") {
  const Scratch scratch;
  const Outcome outcome = run_orrery("fabric " + scratch.write("small.yaml", small_scenario(1)).string());
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.err, Contains("no fabric to look at"));
}

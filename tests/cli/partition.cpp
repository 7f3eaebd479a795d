// Exit codes and output of `orrery partition`.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

TEST_CASE("partitions stand side by side, as a table and as JSON", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome table = run_orrery("partition " + file);
  CHECK(table.code == 0);
  for (const char* strategy : {"per-layer", "per-operator", "nvlink-neighbourhood"}) {
    CHECK_THAT(table.out, Contains(strategy));
  }
  const Outcome outcome = run_orrery("partition " + file + " --json -");
  CHECK(outcome.code == 0);
  const auto rows = nlohmann::json::parse(outcome.out)["partitions"];
  REQUIRE(rows.size() == 3);
  for (const auto& row : rows) {
    CHECK(row["step_time_s"].get<double>() > 0);
    CHECK(row["pcie_bytes"] == 0);  // Behind an NVSwitch.
  }
  CHECK(run_orrery("partition " + file + " --json -").out == outcome.out);
}

TEST_CASE("limits that no piece can keep are told, and end with 4 when nothing is left", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome some = run_orrery("partition " + file + " --min-piece 100000");
  CHECK(some.code == 0);
  CHECK_THAT(some.out, Contains("refused: pieces of 100000"));
  const Outcome none =
      run_orrery("partition " + file + " --strategy nvlink-neighbourhood --min-piece 100000");
  CHECK(none.code == 4);
  CHECK_THAT(none.err, Contains("lower the minimum to"));
  CHECK(run_orrery("partition " + file + " --min-piece 5 --max-piece 4").code == 2);
  CHECK(run_orrery("partition " + file + " --strategy by-name").code == 2);
  CHECK(run_orrery("partition " + file + " --set partition.pieces=[{min: 5, max: 4}]").code == 3);
}

// `orrery validate`: which table it is, the threshold, bad files.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/calibration/training_rows.hpp"
#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using namespace orrery::training_test;
using Catch::Matchers::Contains;

namespace {

std::string table() {
  return header() + line({{"id", "toy-001"}}) + line({{"id", "toy-002"}, {"layers", "2"}}) +
         line({{"id", "toy-003"}, {"experts", "8"}});
}

}  // namespace

TEST_CASE("validate prints groups and refusals, and writes JSON and Markdown", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("training.csv", table()).string();
  const Outcome outcome = run_orrery("validate " + file + " --json " + (scratch / "v.json").string() +
                                     " --markdown " + (scratch / "v.md").string());
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(outcome.out, Contains("toy") && Contains("2 of 3 rows predicted") && Contains("experts"));
  const auto json = nlohmann::json::parse(read(scratch / "v.json"));
  CHECK(json["rows"].size() == 2);
  CHECK(json["groups_counted"] == 1);
  CHECK_THAT(read(scratch / "v.md"), Contains("| toy | H100 | step | 3 | 2 |"));
  CHECK_THAT(run_orrery("validate " + file + " --rows").out, Contains("toy-002"));
  CHECK(nlohmann::json::parse(run_orrery("validate " + file + " --json - --threads 2").out) == json);
}

TEST_CASE("an error above the threshold ends with 6", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("training.csv", table()).string();
  CHECK(run_orrery("validate " + file + " --threshold 1000").code == 0);
  const Outcome outcome = run_orrery("validate " + file + " --threshold 0.000001");
  CHECK(outcome.code == 6);
  CHECK_THAT(outcome.out, Contains("overall"));  // The table is there all the same.
  CHECK_THAT(outcome.err, Contains("above the threshold"));
  CHECK(run_orrery("validate " + file + " --threshold -1").code == 2);
}

TEST_CASE("files that aren't tables of measurements end with 3 and their line", "[cli]") {
  const Scratch scratch;
  const auto error_of = [&](const std::string& text) {
    const Outcome outcome = run_orrery("validate " + scratch.write("x.csv", text).string());
    CHECK(outcome.code == 3);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  CHECK_THAT(error_of("id,colour\n1,red\n"), Contains("x.csv:1: not a table of measurements"));
  CHECK_THAT(error_of(header() + line({{"layers", "many"}})), Contains("x.csv:2"));
  CHECK_THAT(error_of(header() + "one,two\n"), Contains("x.csv:2"));
  CHECK(run_orrery("validate no.csv").code == 3);
}

TEST_CASE("simulate says how far the step time may be off", "[cli]") {
  const Outcome with = run_orrery("simulate scenarios/llama3-8b-8xh100.yaml --json -");
  REQUIRE(with.code == 0);
  const auto figures = nlohmann::json::parse(with.out);
  CHECK(figures["step_time_low_s"].get<double>() < figures["step_time_s"].get<double>());
  CHECK(figures["step_time_high_s"].get<double>() > figures["step_time_s"].get<double>());
  CHECK_THAT(run_orrery("simulate scenarios/llama3-8b-8xh100.yaml").out, Contains("90 % interval"));
  const auto without = nlohmann::json::parse(
      run_orrery("simulate scenarios/llama3-8b-8xh100.yaml --no-interval --json -").out);
  CHECK(without["step_time_low_s"].is_null());
  CHECK(without["step_time_s"] == figures["step_time_s"]);
}

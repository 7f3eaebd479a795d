// Exit codes and files of `orrery simulate`.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::size_t file_count(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a run writes its table, figures, trace and Program", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome table = run_orrery("simulate " + file);
  CHECK(table.code == 0);
  CHECK(table.err.empty());
  CHECK_THAT(table.out, Contains("small"));

  const Outcome outcome =
      run_orrery("simulate " + file + " --json " + (scratch / "r.json").string() + " --trace " +
                 (scratch / "t.json").string() + " --program " + (scratch / "p.txt").string());
  CHECK(outcome.code == 0);
  CHECK(outcome.out == table.out);
  const auto figures = nlohmann::json::parse(read(scratch / "r.json"));
  CHECK(figures["step_time_s"].get<double>() > 0);
  CHECK_FALSE(nlohmann::json::parse(read(scratch / "t.json"))["traceEvents"].empty());
  CHECK_THAT(read(scratch / "p.txt"), Contains("role "));
  CHECK(file_count(scratch.folder()) == 4);  // No temporary file is left.
}

TEST_CASE("figures on standard output stand there alone, and don't depend on threads or folding", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome outcome = run_orrery("simulate " + file + " --json -");
  CHECK(outcome.code == 0);
  const auto figures = nlohmann::json::parse(outcome.out);
  CHECK(run_orrery("simulate " + file + " --json - --threads 3").out == outcome.out);
  const auto unfolded = nlohmann::json::parse(run_orrery("simulate " + file + " --json - --no-fold").out);
  CHECK(unfolded["step_time_s"] == figures["step_time_s"]);
  const auto longer =
      nlohmann::json::parse(run_orrery("simulate " + file + " --json - --set global_batch=32").out);
  CHECK(longer["step_time_s"].get<double>() > figures["step_time_s"].get<double>());
}

TEST_CASE("the scenario's own output files are written beside it", "[cli]") {
  const Scratch scratch;
  const std::string file =
      scratch.write("small.yaml", small_scenario(1) + "output: {json: r.json, trace: t.json}\n").string();
  CHECK(run_orrery("simulate " + file).code == 0);
  CHECK(fs::exists(scratch / "r.json"));
  CHECK(fs::exists(scratch / "t.json"));
}

TEST_CASE("bad files end with 3", "[cli]") {
  const Scratch scratch;
  CHECK(run_orrery("simulate " + (scratch / "none.yaml").string()).code == 3);
  const std::string file = scratch.write("bad.yaml", small_scenario(1) + "plann: 1\n").string();
  const Outcome outcome = run_orrery("simulate " + file);
  CHECK(outcome.code == 3);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "orrery: " + file + ":7:1: unknown key \"plann\"; did you mean \"plan\"?\n");
  CHECK(run_orrery("simulate " + scratch.write("small.yaml", small_scenario(1)).string() + " --set plan.tp=x")
            .code == 3);
}

TEST_CASE("plans that can't work end with 4", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome degrees = run_orrery("simulate " + file + " --set plan.tp=3");
  CHECK(degrees.code == 4);
  CHECK_THAT(degrees.err, Contains("small.yaml: plan"));

  const Outcome endless = run_orrery("simulate " + file + " --set global_batch=1000000");
  CHECK(endless.code == 4);
  CHECK_THAT(endless.err, Contains("500,000 micro-batches"));

  const std::string large =
      " --set model.layers=64 --set model.hidden=8192 --set model.heads=64 --set model.ffn=28672";
  const Outcome memory = run_orrery("simulate " + file + large);
  CHECK(memory.code == 4);
  CHECK(memory.out.empty());
  CHECK_THAT(memory.err, Contains("out of memory"));
  CHECK_THAT(memory.err, Contains("too much"));
  CHECK_THAT(memory.err, Contains("zero: 1"));
  const Outcome allowed = run_orrery("simulate " + file + large + " --allow-oom");
  CHECK(allowed.code == 0);
  CHECK_THAT(allowed.err, Contains("warning:"));
  CHECK_THAT(allowed.err, Contains("out of memory"));
}

TEST_CASE("results that can't be written end with 5 and leave nothing", "[cli]") {
  const Scratch scratch;
  const std::string file = scratch.write("small.yaml", small_scenario(1)).string();
  const Outcome missing = run_orrery("simulate " + file + " --json " + (scratch / "no/r.json").string());
  CHECK(missing.code == 5);
  CHECK_THAT(missing.err, Contains("there is no folder"));
  for (const char* option : {"--json", "--trace", "--program"}) {
    CAPTURE(option);
    const Outcome full = run_orrery("simulate " + file + " " + option + " /dev/full");
    CHECK(full.code == 5);
    CHECK_THAT(full.err, Contains("can't write /dev/full"));
  }
  const Outcome folder = run_orrery("simulate " + file + " --trace " + scratch.folder().string());
  CHECK(folder.code == 5);
  CHECK_THAT(folder.err, Contains("it is a folder"));
  const Outcome output = shell("\"$ORRERY\" simulate " + file + " >/dev/full");
  CHECK(output.code == 5);
  CHECK_THAT(output.err, Contains("standard output"));
  CHECK(file_count(scratch.folder()) == 1);
}

TEST_CASE("a reader that leaves early is no failure", "[cli]") {
  const Outcome outcome = shell("{ \"$ORRERY\" catalogue; echo $? >&2; } | true");
  CHECK(outcome.err == "0\n");
}

TEST_CASE("--verbose says what was assumed", "[cli]") {
  const Scratch scratch;
  const Outcome outcome =
      run_orrery("simulate --verbose " + scratch.write("small.yaml", small_scenario(1)).string());
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.err, Contains("profile: "));
  CHECK_THAT(outcome.err, Contains("engine: "));
}

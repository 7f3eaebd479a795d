// The loop on a tiny plan: calibrate, simulate, run, compare. A machine that others use is slow by any
// factor, so the step times are held to an order of magnitude only; docs/results/host-twin.md has them on an
// idle one.

#include <catch2/catch.hpp>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

TEST_CASE("a calibrated twin predicts a run of this machine", "[cli][calibrate]") {
  Scratch scratch;
  const std::string scenario =
      scratch
          .write("loop.yaml",
                 "name: loop\n"
                 "model: {hidden: 64, layers: 2, heads: 4, ffn: 128, vocab: 256}\n"
                 "sequence: 64\n"
                 "global_batch: 4\n"
                 "cluster: {host: {cores: 2, slots: 2, memory: 1GiB}}\n"
                 "plan: {dp: 2, microbatch: 1, precision: fp32, kernel_set: orrery-host,\n"
                 "  vocab_multiple: 1}\n"
                 "training: {steps: 12, warmup: 3}\n")
          .string();
  const std::string folder = scratch.folder().string();
  const std::string profile = folder + "/host.profile.json";
  const Outcome calibrated =
      run_orrery("calibrate " + scenario + " --plans-only --rounds 3 --ranks 2 -o " + profile);
  CAPTURE(calibrated.err);
  REQUIRE(calibrated.code == 0);
  CHECK_THAT(calibrated.out,
             Contains("matmul") && Contains("all-reduce of 2") && Contains("all cores together"));

  const std::string with_profile =
      scenario + " --set profile.file=" + profile + " --timeline " + folder + "/p.json";
  const Outcome simulated = run_orrery("simulate " + with_profile + " --json -");
  CAPTURE(simulated.err);
  REQUIRE(simulated.code == 0);
  const Outcome ran = run_orrery("run " + scenario + " --timeline " + folder + "/m.json --json -");
  CAPTURE(ran.err);
  REQUIRE(ran.code == 0);
  const double predicted_s = json::parse(simulated.out)["step_time_s"];
  const double measured_s = json::parse(ran.out)["step_time_s"];
  CAPTURE(predicted_s, measured_s);
  CHECK(std::abs(std::log(predicted_s / measured_s)) < std::log(20));
  CHECK(json::parse(ran.out)["peak_memory_bytes"] == json::parse(ran.out)["predicted_memory_bytes"]);

  const Outcome compared = run_orrery("compare " + folder + "/p.json " + folder + "/m.json");
  CAPTURE(compared.err);
  CHECK(compared.code == 0);
  CHECK_THAT(compared.out, Contains("gradients.reduce") && Contains("rank 1"));
  CHECK(run_orrery("compare " + folder + "/p.json " + folder + "/m.json --threshold 0").code == 6);
}

TEST_CASE("calibrate without plans says which it wants", "[cli][calibrate]") {
  const Outcome outcome = run_orrery("calibrate --plans-only -o /dev/null");
  CHECK(outcome.code == 2);
  CHECK_THAT(outcome.err, Contains("no scenario file says which plans"));
}

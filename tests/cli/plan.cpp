// `orrery plan import` as people run it.

#include <catch2/catch.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

TEST_CASE("the kept scenario is what the command writes", "[cli]") {
  const Outcome outcome =
      run_orrery("plan import tests/data/llama3-8b-megatron.sh --node dgx-h100 --nodes 2");
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK(outcome.out == read(fs::path(ORRERY_SOURCE_DIR) / "scenarios/llama3-8b-megatron.yaml"));
}

TEST_CASE("an import can be simulated as it is", "[cli]") {
  const Scratch scratch;
  const std::string out = (scratch / "imported.yaml").string();
  const std::string ds = scratch
                             .write("ds.json",
                                    R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
                                           "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})")
                             .string();
  const Outcome written = run_orrery(
      "plan import " + ds + " --model scenarios/models/llama-3-8b.json --node dgx-h100 --output " + out);
  CHECK(written.code == 0);
  CHECK(written.out.empty());
  CHECK_THAT(written.err, Contains("needed besides: sequence: DeepSpeed's settings don't say it"));
  const Outcome simulated = run_orrery("simulate " + out + " --set sequence=1024 --no-interval");
  INFO(simulated.err);
  CHECK(simulated.code == 0);
  CHECK_THAT(simulated.out, Contains("dp 8; batch 16 (micro 1), sequence 1024"));
}

TEST_CASE("what can't be imported ends with its exit code", "[cli]") {
  const Scratch scratch;
  const std::string open = scratch.write("run.sh", "run --micro-batch-size $MBS\n").string();
  const Outcome wanting = run_orrery("plan import " + open);
  CHECK(wanting.code == 3);
  CHECK(wanting.out.empty());
  CHECK_THAT(wanting.err, Contains("run.sh: leaves values open: MBS"));
  CHECK(run_orrery("plan import " + open + " --var MBS=2").code == 0);
  CHECK(run_orrery("plan import " + open + " --var MBS").code == 2);
  CHECK(run_orrery("plan import " + open + " --format torch").code == 2);
  CHECK(run_orrery("plan import " + open + " --node dgx-z9").code == 2);
  CHECK(run_orrery("plan import no.sh").code == 3);
  const Outcome indivisible = run_orrery("plan import tests/data/llama3-8b-megatron.sh --gpus 12");
  CHECK(indivisible.code == 4);
  CHECK_THAT(indivisible.err, Contains("tp 2 × pp 4 = 8 doesn't divide it"));
}

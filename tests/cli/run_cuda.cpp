// `orrery run --backend cuda` where it can't run: what is missing, and what it ends with.

#include <catch2/catch.hpp>

#include <iostream>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

namespace {

const std::string kOneRank = "scenarios/gpu-125m.yaml";

void refused(const Outcome& outcome, int code, const std::string& message) {
  CAPTURE(outcome.out, outcome.err, message);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK_THAT(outcome.err, Contains(message));
  CHECK(outcome.err.find("orrery: ") == outcome.err.rfind("orrery: "));  // One message.
}

}  // namespace

TEST_CASE("without a module or a GPU a run ends with 5 and says how to mend it", "[cli]") {
  const Outcome outcome = run_orrery("run " + kOneRank + " --backend cuda --steps 1");
  if (outcome.code == 0) {
    std::cout << "skipped: this machine has a GPU\n";
    return;
  }
  refused(outcome, 5, "--backend host");
  const bool has_module = outcome.err.find("no GPU can be used") != std::string::npos;
  CHECK_THAT(outcome.err, Contains(has_module ? "nvidia-smi" : "no liborrery-cuda.so"));
}

TEST_CASE("a file that is no module, or one of another build, is named", "[cli]") {
  const Scratch scratch;
  const auto with = [](const std::string& modules) {
    return shell("ORRERY_MODULES='" + modules + "' \"$ORRERY\" run " + kOneRank +
                 " --backend cuda --steps 1");
  };
  const std::string text = scratch.write("liborrery-cuda.so", "no module").string();
  refused(with(scratch.folder().string()), 5, text + " can't be loaded");
  refused(with(text), 5, text + " can't be loaded");  // A file itself.
  refused(with(ORRERY_MODULE_WITHOUT_ENTRY), 5,
          "is no module of orrery's: build program and module together");
  refused(with(ORRERY_MODULE_OF_ANOTHER_BUILD), 5, "is of build another, this program of ");
}

TEST_CASE("ranks on GPUs are launched, not forked", "[cli]") {
  const Outcome outcome = run_orrery("run scenarios/gpu-125m-dp2.yaml --backend cuda");
  refused(outcome, 2, "this plan has 2 ranks");
  CHECK_THAT(outcome.err, Contains("torchrun --no-python --nproc-per-node 2 orrery run"));
}

TEST_CASE("options of the other backend are refused", "[cli]") {
  for (const char* option : {"--pin", "--processes", "--gemm own"}) {
    refused(run_orrery("run " + kOneRank + " --backend cuda " + option), 2, "belongs to the host backend");
  }
  for (const char* option : {"--deterministic", "--plain-launches", "--algorithm-cache folder",
                             "--tune quick", "--time-kernels 10", "--trace-kernels trace.json"}) {
    refused(run_orrery("run " + kOneRank + " " + option), 2, "belongs to the cuda backend");
  }
}

TEST_CASE("a trace of kernels that can't be written is noticed before the run", "[cli]") {
  refused(run_orrery("run " + kOneRank + " --backend cuda --trace-kernels /nowhere/trace.json"), 5,
          "can't write /nowhere/trace.json");
}

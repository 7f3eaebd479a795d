// `orrery graph`: which file it is, check, explain, dot, exit codes.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

TEST_CASE("graph check knows each format by its content", "[cli]") {
  const Scratch scratch;
  for (const auto& [file, says] : std::initializer_list<std::pair<const char*, const char*>>{
           {"tests/data/fx-tiny-gpt.json", "OK: fx, "},
           {"tests/data/fx-linear.txt", "OK: fx-text, 3 ops"},
           {"tests/data/tiny.onnx --dim batch=2 --dim seq=3", "OK: onnx, "},
           {"tests/data/chakra-pair.0.et tests/data/chakra-pair.1.et", "OK: chakra, 2 ranks"},
           {"tests/data/chakra.json", "OK: chakra, 1 ranks"},
           {"scenarios/models/llama-3-8b.json", "OK: hf, "},
           {"scenarios/llama3-8b-8xh100.yaml", "OK: scenario, "}}) {
    CAPTURE(file);
    const Outcome outcome = run_orrery("graph check " + std::string(file));
    CHECK(outcome.code == 0);
    CHECK_THAT(outcome.out, Contains(says));
  }
  const Outcome forced = run_orrery("graph check tests/data/tiny.onnx --format hf");
  CHECK(forced.code == 3);
  CHECK_THAT(forced.err, Contains("tiny.onnx:1:1"));
  const std::string empty = scratch.write("empty", "").string();
  CHECK_THAT(run_orrery("graph check " + empty).err, Contains("empty"));
  const std::string packed = scratch.write("a.json.gz", "\x1f\x8b??").string();
  CHECK_THAT(run_orrery("graph check " + packed).err, Contains("gunzip"));
  CHECK_THAT(run_orrery("graph check nowhere").err, Contains("nowhere: no such file"));
}

TEST_CASE("graph check ends with 3 and names every fault", "[cli]") {
  const Scratch scratch;
  const std::string file =
      scratch
          .write(
              "two.txt",
              "class M(torch.nn.Module):\n  def forward(self, x: \"f32[2]\", w: \"f32[3]\", v: \"f32[3]\"):\n"
              "    a: \"f32[2]\" = torch.relu(x)\n    return (a,)\n")
          .string();
  const Outcome outcome = run_orrery("graph check " + file + " --json -");
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.err, Contains("tensor w: the input doesn't reach any output") && Contains("tensor v") &&
                              Contains("2 faults"));
  const auto json = nlohmann::json::parse(outcome.out);
  CHECK(json["ok"] == false);
  CHECK(json["faults"].size() == 2);
  CHECK(run_orrery("graph explain " + file).code == 0);  // Which warns only.
}

TEST_CASE("graph explain counts by kind and by block", "[cli]") {
  const Outcome text = run_orrery("graph explain tests/data/fx-tiny-gpt.json");
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains("hash") && Contains("parameters     5,488") && Contains("matmul"));
  const auto json =
      nlohmann::json::parse(run_orrery("graph explain tests/data/fx-tiny-gpt.json --json -").out);
  CHECK(json["total"]["parameters"] == 5488);
  // Qkv, out, up and down: 16 rows, 16 wide, 48 + 16 + 64 columns and back; the head 16·16·64.
  CHECK(json["kinds"]["matmul"]["flops"] == 2 * 16 * 16 * (48 + 16 + 64 + 64) + 2 * 16 * 16 * 64);
  CHECK(json["blocks"].size() == 3);
  const auto trace = nlohmann::json::parse(
      run_orrery("graph explain tests/data/chakra-pair.0.et tests/data/chakra-pair.1.et --json -").out);
  CHECK(trace["ranks"] == 2);
  CHECK(trace["roles"][0]["instructions"]["compute"]["time_s"].get<double>() == Approx(60e-6));
  const auto model = nlohmann::json::parse(
      run_orrery("graph explain scenarios/models/llama-3-8b.json --sequence 128 --json -").out);
  CHECK(model["total"]["parameters"] == 8'030'261'248);
}

TEST_CASE("what PyTorch 2.11 exported is sound, forward alone and with its backward", "[cli]") {
  // Tables of 16 and 128 rows of 32; two layers of norms (64 each), qkv, out, up and down with biases; final
  // norm and head.
  const int layer = 2 * 64 + 32 * 96 + 96 + 32 * 32 + 32 + 32 * 128 + 128 + 128 * 32 + 32;
  const int parameters = 16 * 32 + 128 * 32 + 2 * layer + 64 + 128 * 32;
  for (const std::string file : {"tests/data/torch-tiny-gpt.json", "tests/data/torch-tiny-gpt-joint.json"}) {
    INFO(file);
    CHECK(run_orrery("graph check " + file).code == 0);
    const auto json = nlohmann::json::parse(run_orrery("graph explain " + file + " --json -").out);
    CHECK(json["total"]["parameters"] == parameters);
  }
}

TEST_CASE("graph dot writes Graphviz", "[cli]") {
  const Scratch scratch;
  CHECK_THAT(run_orrery("graph dot tests/data/fx-tiny-gpt.json --blocks").out,
             Catch::StartsWith("digraph") && Contains("forward1"));
  CHECK(run_orrery("graph dot tests/data/fx-tiny-gpt.json --output " + (scratch / "g.dot").string())
            .out.empty());
  CHECK_THAT(read(scratch / "g.dot"), Contains("cross-entropy"));
  CHECK(run_orrery("graph dot tests/data/chakra.json").code == 3);
}

TEST_CASE("graph says what is missing", "[cli]") {
  const Outcome symbols = run_orrery("graph check tests/data/tiny.onnx");
  CHECK(symbols.code == 3);
  CHECK_THAT(symbols.err, Contains("--dim \"batch=SIZE\" --dim \"seq=SIZE\""));
  CHECK(run_orrery("graph check tests/data/tiny.onnx --dim batch").code == 2);
  CHECK(run_orrery("graph check tests/data/tiny.onnx --format nonsense").code == 2);
  CHECK(run_orrery("graph check tests/data/chakra-ring.et --ranks 4").code == 0);
  CHECK(run_orrery("graph check tests/data/chakra-ring.et").code == 3);
  CHECK(run_orrery("graph check tests/data/tiny.onnx tests/data/tiny.onnx --dim batch=1 --dim seq=1").code ==
        3);
}

// Every published graph and trace in the data folder: imported and found sound, imported with the fault that
// it has, or refused for the reason that it gives.

#include <catch2/catch.hpp>

#include <iostream>
#include <map>

#include "base/error.hpp"
#include "model/import_chakra.hpp"
#include "model/import_fx.hpp"
#include "model/import_onnx.hpp"
#include "tests/model/import_files.hpp"

using namespace orrery;
using namespace orrery::import_test;
using Catch::Matchers::Contains;

namespace {

// "": sound. Else what a fault or the refusal has to say.
const std::map<std::string, std::string>& expectations() {
  static const std::map<std::string, std::string> kTable = {
      {"fx-collectives-r0-aot-inference-graph-1.txt", "all_reduce.default is a collective"},
      {"fx-collectives-r0-aot-inference-graph-2.txt", "all_reduce.default is a collective"},
      {"fx-collectives-r0-dynamo-output-graph-1.txt", "all_reduce.default is a collective"},
      {"fx-collectives-r0-dynamo-output-graph-2.txt", "all_reduce.default is a collective"},
      {"fx-export-exported-program-1.txt", "symbolic"},  // y: f32[s0]
      {"fx-jit-joint-aot-backward-graph-1.txt", ""},
      // Two results of separate inputs.
      {"fx-jit-joint-aot-forward-graph-1.txt", "no output is reached from every input"},
      {"fx-jit-joint-aot-joint-graph-1.txt", "no output is reached from every input"},
      {"fx-jit-joint-dynamo-output-graph-1.txt", "no output is reached from every input"},
      {"fx-simple-train-aot-inference-graph-1.txt", "torch.ops.test.baz.default"},
      {"fx-simple-train-dynamo-output-graph-1.txt", "torch.ops.test.baz"},
      {"fx-simple-train-inductor-post-grad-graph-1.txt", "torch.ops.test.baz.default"},
      {"onnx-gpt2-tiny-fp32.onnx", ""},
      {"onnx-qwen35-tiny.onnx", ""},
      {"chakra-all_reduce-8npus.0.et", ""},
      {"chakra-reduce_scatter-4npus.0.et", ""},
      {"chakra-ring-allreduce-custom.0.et", ""},
      {"chakra-json.0.json.gz", ""},
      {"et-chakra-1.0.2.json", "PyTorch execution trace"},
      {"et-param-dlrm-r0.json.gz", "PyTorch execution trace"},
      {"et-param-dlrm-r1.json.gz", "PyTorch execution trace"},
      {"et-param-dlrm-r3.json.gz", "PyTorch execution trace"},
      {"et-param-hf-gpt2.json.gz", "PyTorch execution trace"},
      {"et-param-linear.json.gz", "PyTorch execution trace"},
      {"et-param-resnet-1gpu.json.gz", "PyTorch execution trace"}};
  return kTable;
}

std::vector<std::string> outcome(const std::string& name, const std::string& bytes) {
  ImportOptions options;
  options.dims = {{"batch_size", 2}, {"seq_len", 16}, {"past_seq_len", 8}, {"total_seq_len", 24}};
  ChakraOptions trace;
  if (name.find("8npus") != std::string::npos || name.find("ring") != std::string::npos) trace.ranks = 8;
  if (name.find("4npus") != std::string::npos) trace.ranks = 4;
  try {
    if (name.starts_with("fx-")) return verify(read_fx_text(bytes, name, options));
    if (name.starts_with("onnx-")) return verify(read_onnx(bytes, name, options));
    return verify(read_chakra({{name, bytes}}, trace).program);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return {error.what()};
  }
}

}  // namespace

TEST_CASE("every published graph and trace imports or says why not", "[import][data]") {
  const std::filesystem::path folder = traces_folder();
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no published traces (set ORRERY_DATA to the data folder)\n";
    return;
  }
  for (const auto& [name, expected] : expectations()) {
    CAPTURE(name);
    const std::vector<std::string> said = outcome(name, unpacked(folder / name));
    if (expected.empty()) {
      CHECK(said == std::vector<std::string>{});
    } else {
      REQUIRE(said.size() >= 1);
      CHECK_THAT(said[0], Contains(expected));
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("fx-") || name.starts_with("onnx-") || name.starts_with("chakra-") ||
                      name.starts_with("et-");
    CAPTURE(name);
    if (ours) CHECK(expectations().contains(name));
  }
}

TEST_CASE("the published ONNX models have the parameters of their files", "[import][data]") {
  const std::filesystem::path folder = traces_folder();
  if (!std::filesystem::exists(folder)) {
    std::cout << "skipped: no published traces (set ORRERY_DATA to the data folder)\n";
    return;
  }
  ImportOptions options;
  options.dims = {{"batch_size", 2}, {"seq_len", 16}, {"past_seq_len", 8}, {"total_seq_len", 24}};
  // GPT-2 with h = 32, 5 layers, vocabulary 1000, 512 positions; norms, and the biases that happen to be
  // equal, are stored once: 1000·32 twice, 512·32, five times 32·96 + 32·32 + 2·32·128, and 32 + 32 + 96 +
  // 128.
  const Graph gpt2 = read_onnx(read_file(folder / "onnx-gpt2-tiny-fp32.onnx"), "gpt2", options);
  CHECK(parameter_count(gpt2) == 2 * 32'000 + 16'384 + 5 * (3072 + 1024 + 8192) + 288);
  CHECK(gpt2.layers == 5);
  // h = 64, 2 layers, 4 heads of 16 with 2 kv heads, ffn 128: embedding and head, per layer q, k, v, o, up,
  // down and four vectors; a last norm.
  const Graph qwen = read_onnx(read_file(folder / "onnx-qwen35-tiny.onnx"), "qwen", options);
  CHECK(parameter_count(qwen) == 2 * 64'000 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 2 * 64 * 128 + 4 * 64) + 128);
  CHECK(qwen.layers == 2);
}

// The fingerprint of a graph: what it doesn't see, and that it sees the rest.

#include <catch2/catch.hpp>

#include <algorithm>

#include "model/graph_dot.hpp"
#include "model/graph_hash.hpp"
#include "model/import_fx.hpp"
#include "model/transformer.hpp"
#include "tests/model/import_files.hpp"

using namespace orrery;
using namespace orrery::import_test;
using Catch::Matchers::Contains;

namespace {

std::uint64_t hash(const std::string& arguments, const std::string& lines) {
  const Graph graph =
      read_fx_text("class M(torch.nn.Module):\n  def forward(self, " + arguments + "):\n" + lines, "m.txt");
  CHECK(verify(graph).empty());
  return graph_hash(graph);
}

const std::string kArguments = "x: \"f32[2, 8]\", p_a: \"f32[8, 8]\", p_b: \"f32[8, 8]\"";

std::string lines(const std::string& u, const std::string& v, bool swapped, const std::string& weight = "p_b",
                  const std::string& activation = "torch.relu") {
  const std::string first = "    " + u + ": \"f32[2, 8]\" = torch.mm(x, p_a)\n";
  const std::string second = "    " + v + ": \"f32[2, 8]\" = torch.mm(x, " + weight + ")\n";
  return (swapped ? second + first : first + second) + "    r: \"f32[2, 8]\" = " + activation + "(" + v +
         ")\n    s: \"f32[2, 8]\" = " + u + " * r\n    return (s,)\n";
}

}  // namespace

TEST_CASE("names and the order of independent ops don't count", "[import][graph_hash]") {
  const std::uint64_t once = hash(kArguments, lines("u", "v", false));
  CHECK(hash(kArguments, lines("left", "right", false)) == once);
  CHECK(hash(kArguments, lines("u", "v", true)) == once);
}

TEST_CASE("structure, kinds, shapes, types and attributes count", "[import][graph_hash]") {
  const std::uint64_t once = hash(kArguments, lines("u", "v", false));
  CHECK(hash("x: \"f32[2, 8]\", p_a: \"f32[8, 8]\"", lines("u", "v", false, "p_a")) !=
        once);  // One weight, read twice.
  CHECK(hash(kArguments, lines("u", "v", false, "p_b", "torch.sin")) != once);
  CHECK(hash(kArguments, lines("u", "v", false, "p_b", "torch.cos")) !=
        hash(kArguments, lines("u", "v", false, "p_b", "torch.sin")));
  const auto scaled = [](const std::string& size, const std::string& type, const std::string& factor) {
    const std::string tensor = "\"" + type + "[2, " + size + "]\"";
    return hash("x: " + tensor, "    y: " + tensor + " = x * " + factor + "\n    return (y,)\n");
  };
  const std::uint64_t base = scaled("8", "f32", "0.5");
  CHECK(scaled("9", "f32", "0.5") != base);
  CHECK(scaled("8", "bf16", "0.5") != base);
  CHECK(scaled("8", "f32", "0.25") != base);
  // a − b and b − a.
  const std::string two = "a: \"f32[2]\", b: \"f32[2]\"";
  const auto difference = [&](const std::string& first, const std::string& second) {
    return hash(two, "    c: \"f32[2]\" = torch.sin(a)\n    y: \"f32[2]\" = torch.sub(" + first + ", " +
                         second + ")\n    return (y,)\n");
  };
  CHECK(difference("c", "b") != difference("b", "c"));
}

TEST_CASE("a graph of our own hashes alike under renaming, and not with another activation",
          "[import][graph_hash]") {
  TransformerConfig config;
  config.hidden = 16;
  config.layers = 2;
  config.heads = config.kv_heads = 2;
  config.head_dim = 8;
  config.ffn = 32;
  config.vocab = 64;
  config.max_positions = 32;
  Graph graph = build_training_graph(config, DType::kBf16);
  const std::uint64_t once = graph_hash(graph);
  CHECK(hash_text(once).size() == 16);
  config.activation = Activation::kRelu;
  CHECK(graph_hash(build_training_graph(config, DType::kBf16)) != once);
  for (Op& op : graph.ops) op.name += "'";
  for (Tensor& tensor : graph.tensors) tensor.name += "'";
  CHECK(graph_hash(graph) == once);
}

TEST_CASE("a graph is drawn by op and by block", "[import][graph_dot]") {
  const Graph graph = read_fx_json(test_data("fx-tiny-gpt.json"), "tiny.json");
  const std::string ops = to_dot(graph);
  CHECK_THAT(ops, Catch::StartsWith("digraph \"tiny-gpt\" {") && Catch::EndsWith("}\n") &&
                      Contains("layers.0.up.weight"));
  CHECK(std::count(ops.begin(), ops.end(), '{') == 1);
  const std::string blocks = to_dot(graph, {true});
  CHECK_THAT(blocks,
             Contains("forward0 -> forward1") && Contains("forward1 -> forward2") && Contains("4 matmul"));
}

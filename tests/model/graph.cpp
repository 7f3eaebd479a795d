#include "model/graph.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "tests/model/transformer_shapes.hpp"

using namespace orrery;

TEST_CASE("every op kind and phase has its own word", "[graph]") {
  std::set<std::string_view> words;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kAdamW); ++kind) {
    words.insert(to_string(static_cast<OpKind>(kind)));
  }
  CHECK(words.size() == static_cast<std::size_t>(OpKind::kAdamW) + 1);
  CHECK_FALSE(words.contains("?"));
  CHECK(to_string(OpKind::kMatmulGradWeight) == "matmul-grad-weight");
  CHECK(to_string(Phase::kForward) == "forward");
  CHECK(to_string(Phase::kBackward) == "backward");
  CHECK(to_string(Phase::kOptimizer) == "optimizer");
}

TEST_CASE("bind fills in batch and sequence and leaves the rest", "[graph]") {
  Graph graph;
  graph.dims = {{"batch", DimRole::kBatch, 0},
                {"sequence", DimRole::kSequence, 0},
                {"hidden", DimRole::kHidden, 64},
                {"fixed", DimRole::kSequence, 16}};
  CHECK(bind(graph, 3, 128) == Sizes{3, 128, 64, 16});
}

TEST_CASE("elements and bytes follow shape and type", "[graph]") {
  Graph graph;
  graph.dims = {{"batch", DimRole::kBatch, 0}, {"hidden", DimRole::kHidden, 64}};
  graph.tensors.resize(3);
  graph.tensors[0].shape = {DimId(0), DimId(1)};
  graph.tensors[1].shape = {DimId(1)};
  graph.tensors[1].dtype = DType::kFp32;
  graph.tensors[2].dtype = DType::kInt64;
  const Sizes sizes = bind(graph, 3, 1);
  CHECK(element_count(graph, TensorId(0), sizes) == 192);
  CHECK(size_bytes(graph, TensorId(0), sizes) == 384);
  CHECK(size_bytes(graph, TensorId(1), sizes) == 256);
  CHECK(element_count(graph, TensorId(2), sizes) == 1);  // A scalar.
  CHECK(size_bytes(graph, TensorId(2), sizes) == 8);
}

TEST_CASE("parameters are counted by block", "[graph]") {
  const Graph graph = build_training_graph(test::llama3_8b(), DType::kBf16);
  // Token table 128256 · 4096; a layer: q and out 4096² each, k and v 4096 · 1024 each, three MLP
  // matrices 4096 · 14336, two norms; the head with its norm.
  const std::int64_t table = 128256LL * 4096;
  const std::int64_t layer = 2 * 4096LL * 4096 + 2 * 4096LL * 1024 + 3 * 4096LL * 14336 + 2 * 4096;
  CHECK(parameter_count(graph, 0) == table);
  CHECK(parameter_count(graph, 1) == layer);
  CHECK(parameter_count(graph, 32) == layer);
  CHECK(parameter_count(graph, 33) == table + 4096);
  CHECK(parameter_count(graph) == 8'030'261'248);
  CHECK(graph.block_count() == 34);
}

TEST_CASE("bind works out the slots of an expert", "[graph]") {
  Graph graph;
  graph.dims = {{"batch", DimRole::kBatch, 0},
                {"sequence", DimRole::kSequence, 0},
                {"experts", DimRole::kExperts, 6},
                {"top_k", DimRole::kTopK, 2},
                {"slots", DimRole::kSlots, 0}};
  // 2 · 5 tokens with 2 picks each over 6 experts: 3.33 rows on average.
  CHECK(bind(graph, 2, 5)[4] == 4);
  CHECK(bind(graph, 2, 5, 1.5)[4] == 5);
  CHECK(bind(graph, 2, 5, 3.0)[4] == 10);  // experts / top_k: every token at one expert.
  CHECK(bind(graph, 2, 5, 1e300)[4] == 10);
  CHECK(bind(graph, 1, 1, 1e-9)[4] == 1);
  CHECK(bind(graph, 3, 4096)[4] == 4096);
}

TEST_CASE("a token meets its picks of the experts' parameters and all others", "[graph]") {
  TransformerConfig config = test::tiny_experts();
  config.experts.router_bias = config.experts.expert_bias = true;
  config.experts.shared_ffn = 5;
  const Graph graph = build_training_graph(config, DType::kBf16);
  // Hidden 12: one expert has three matrices of 12 · 7 and biases of 7, 7 and 12.
  const std::int64_t expert = 3 * 12 * 7 + 7 + 7 + 12;
  const std::int64_t router = 12 * 6 + 6;
  const std::int64_t attention = 2 * (12 * 4 * 4) + 2 * (12 * 2 * 4);
  const std::int64_t others = attention + router + 3 * 12 * 5 + 2 * 12;
  CHECK(parameter_count(graph, 1) == others + 6 * expert);
  CHECK(active_parameter_count(graph) == parameter_count(graph) - 2 * (6 - 2) * expert);
  const Graph dense = build_training_graph(test::tiny_llama(), DType::kBf16);
  CHECK(active_parameter_count(dense) == parameter_count(dense));
}

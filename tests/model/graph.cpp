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

// The structure of the backward graph; autodiff_numeric.cpp checks its values.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "model/transformer.hpp"
#include "tests/model/transformer_shapes.hpp"

using namespace orrery;

namespace {

std::string backward_text(const Graph& graph, std::int32_t block) {
  std::string text;
  for (const Op& op : graph.ops) {
    if (op.block != block || op.phase != Phase::kBackward) continue;
    text += op.name + ":";
    for (const TensorId input : op.inputs) text += " " + graph[input].name;
    text += " ->";
    for (const TensorId output : op.outputs) text += " " + graph[output].name;
    text += "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the backward of the head", "[autodiff]") {
  const Graph graph = add_backward(build_forward(test::tiny_llama(), DType::kBf16));
  CHECK(backward_text(graph, 3) ==
        "cross_entropy.grad: logits labels loss.lse -> d_logits\n"
        "head.grad_input: d_logits head.weight -> d_final_norm.output\n"
        "head.grad_weight: final_norm.output d_logits -> d_head.weight\n"
        "final_norm.grad: layer2.output final_norm.weight d_final_norm.output -> d_layer2.output "
        "d_final_norm.weight\n");
}

TEST_CASE("a residual's gradient passes through; only its sum with the branch is an op", "[autodiff]") {
  const Graph graph = add_backward(build_forward(test::tiny_llama(), DType::kBf16));
  const std::string layer = backward_text(graph, 2);
  CHECK_THAT(layer, Catch::StartsWith("layer2.down.grad_input: d_layer2.output layer2.mlp.down_weight -> "
                                      "d_layer2.mlp.gated\n"));
  CHECK_THAT(layer, Catch::Contains("layer2.norm2.grad: layer2.residual layer2.norm2.weight "
                                    "d_layer2.norm2.output -> d_layer2.residual.part2 d_layer2.norm2.weight\n"
                                    "layer2.norm2.accumulate: d_layer2.output d_layer2.residual.part2 -> "
                                    "d_layer2.residual\n"));
  // What goes to the block before is one tensor, summed here.
  CHECK_THAT(layer, Catch::EndsWith("layer2.norm1.accumulate: d_layer2.residual d_layer1.output.part2 -> "
                                    "d_layer1.output\n"));
}

TEST_CASE("biases have their gradients with the weights", "[autodiff]") {
  const Graph graph = add_backward(build_forward(test::tiny_gpt2(), DType::kBf16));
  CHECK_THAT(backward_text(graph, 1),
             Catch::Contains("layer1.qkv.grad_weight: layer1.norm1.output d_layer1.attention.q "
                             "d_layer1.attention.k d_layer1.attention.v -> d_layer1.attention.q_weight "
                             "d_layer1.attention.k_weight d_layer1.attention.v_weight "
                             "d_layer1.attention.q_bias d_layer1.attention.k_bias "
                             "d_layer1.attention.v_bias\n"));
}

TEST_CASE("a tied table has one gradient that head and embedding both add into", "[autodiff]") {
  const Graph graph = build_training_graph(test::tiny_gpt2(), DType::kBf16);
  CHECK(verify(graph).empty());
  CHECK_THAT(backward_text(graph, 3),
             Catch::Contains("head.grad_weight: final_norm.output d_logits -> d_embedding.table\n"));
  // Adding positions passes the gradient on as it is.
  CHECK(backward_text(graph, 0) ==
        "embedding.positions.grad: d_embedding.positions.output -> d_embedding.position_table\n"
        "embedding.tokens.grad: token_ids d_embedding.positions.output -> d_embedding.table\n");
  const auto gradients = std::count_if(graph.tensors.begin(), graph.tensors.end(), [](const Tensor& tensor) {
    return tensor.kind == TensorKind::kParameterGradient && tensor.name == "d_embedding.table";
  });
  CHECK(gradients == 1);
  // It lives where the table lives.
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == "d_embedding.table") CHECK(tensor.block == 0);
  }
  for (const Op& op : graph.ops) {
    if (op.name == "embedding.table.adamw") CHECK(op.block == 0);
  }
}

TEST_CASE("backward ops stand in the reverse order of their forward ops, block by block", "[autodiff]") {
  TransformerConfig config = test::tiny_gpt2();
  config.residual_dropout = config.embedding_dropout = 0.1;
  config.parallel_residual = config.shared_input_norm = true;
  for (const Graph& graph :
       {build_training_graph(test::tiny_llama(), DType::kBf16), build_training_graph(config, DType::kBf16)}) {
    std::int32_t block = graph.layers + 1;
    std::int32_t forward = static_cast<std::int32_t>(graph.ops.size());
    for (const Op& op : graph.ops) {
      if (op.phase != Phase::kBackward) continue;
      INFO(op.name);
      CHECK(op.block <= block);
      CHECK(op.forward_of.value <= forward);
      CHECK(op.block == graph[op.forward_of].block);
      block = op.block;
      forward = op.forward_of.value;
    }
    CHECK(block == 0);
  }
}

TEST_CASE("every parameter has one fp32 gradient and one update in its block", "[autodiff]") {
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kBf16);
  std::map<std::string, int> gradients;
  std::map<std::string, int> updates;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::kParameterGradient) continue;
    CHECK(tensor.dtype == DType::kFp32);
    CHECK(tensor.name == "d_" + graph[tensor.gradient_of].name);
    CHECK(tensor.block == graph[tensor.gradient_of].block);
    ++gradients[graph[tensor.gradient_of].name];
  }
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kAdamW) continue;
    CHECK(op.block == graph[op.inputs[0]].block);
    CHECK(op.phase == Phase::kOptimizer);
    ++updates[graph[op.inputs[0]].name];
  }
  int parameters = 0;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind != TensorKind::kParameter) continue;
    ++parameters;
    CHECK(gradients[tensor.name] == 1);
    CHECK(updates[tensor.name] == 1);
  }
  // Token table, head, last norm, and nine in each of two layers.
  CHECK(parameters == 3 + 2 * 9);
}

TEST_CASE("add_backward wants a forward graph with one loss", "[autodiff]") {
  const Graph forward = build_forward(test::tiny_llama(), DType::kBf16);
  CHECK_THROWS_WITH(add_backward(add_backward(forward)), Catch::Contains("isn't a forward op"));
  Graph none = forward;
  none.ops.pop_back();
  CHECK_THROWS_WITH(add_backward(none), Catch::Contains("no loss; expected one cross entropy"));
  Graph two = forward;
  two.ops.push_back(two.ops.back());
  CHECK_THROWS_WITH(add_backward(two), Catch::Contains("two losses"));
  CHECK_THROWS_WITH(add_optimizer(forward), Catch::Contains("has no gradient"));
}

TEST_CASE("ops that don't lead to the loss have no backward", "[autodiff]") {
  Graph graph = build_forward(test::tiny_llama(), DType::kBf16);
  // A second activation of the last logits that nobody uses, made before the loss.
  Tensor side = graph.tensors[graph.ops.front().outputs[0].index()];
  side.name = "side";
  side.producer = OpId(static_cast<std::int64_t>(graph.ops.size()));
  graph.tensors.push_back(side);
  Op unused;
  unused.name = "unused";
  unused.kind = OpKind::kUnary;
  unused.inputs = graph.ops.front().outputs;
  unused.outputs = {TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1)};
  graph.ops.push_back(unused);
  const Graph both = add_backward(graph);
  for (const Op& op : both.ops) CHECK(op.name != "unused.grad");

  // One output of an op on the way, the others not: there is no rule for that.
  Graph half = build_forward(test::tiny_llama(), DType::kBf16);
  for (Op& op : half.ops) {
    if (op.name == "layer1.attention") op.inputs[2] = op.inputs[1];
  }
  CHECK_THROWS_WITH(add_backward(half), Catch::Contains("output layer1.attention.v of op layer1.qkv"));
}

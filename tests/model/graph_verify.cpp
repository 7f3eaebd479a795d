// Each fault that verify(graph) knows, in the smallest graph that has it.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "model/graph.hpp"
#include "tests/model/transformer_shapes.hpp"

using namespace orrery;

namespace {

Graph training() { return build_training_graph(test::tiny_llama(), DType::kBf16); }

std::size_t op_index(const Graph& graph, std::string_view name) {
  const auto found =
      std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.name == name; });
  REQUIRE(found != graph.ops.end());
  return static_cast<std::size_t>(found - graph.ops.begin());
}

std::size_t tensor_index(const Graph& graph, std::string_view name) {
  const auto found = std::find_if(graph.tensors.begin(), graph.tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  REQUIRE(found != graph.tensors.end());
  return static_cast<std::size_t>(found - graph.tensors.begin());
}

Op& op(Graph& graph, std::string_view name) { return graph.ops[op_index(graph, name)]; }
Tensor& tensor(Graph& graph, std::string_view name) { return graph.tensors[tensor_index(graph, name)]; }
TensorId id(const Graph& graph, std::string_view name) {
  return TensorId(static_cast<std::int64_t>(tensor_index(graph, name)));
}

// The faults of a sound graph after `damage`, one a line.
std::string faults_after(const std::function<void(Graph&)>& damage) {
  Graph graph = training();
  damage(graph);
  std::string text;
  for (const std::string& fault : verify(graph)) text += fault + "\n";
  return text;
}

using Catch::Matchers::Contains;

}  // namespace

TEST_CASE("sound graphs have no faults", "[graph][verify]") {
  const TransformerConfig config = test::tiny_llama();
  const Graph forward = build_forward(config, DType::kBf16);
  CHECK(verify(forward).empty());
  CHECK(verify(add_backward(forward)).empty());
  CHECK(verify(training()).empty());
}

TEST_CASE("verify finds ids out of range", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) { op(g, "layer1.norm1").inputs[0] = TensorId(99999); }),
             Contains("op layer1.norm1: input 99999 is out of range; the graph has "));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "layer1.norm1").outputs[0] = TensorId(); }),
             Contains("op layer1.norm1: output -1 is out of range"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "layer1.norm1.grad").forward_of = OpId(99999); }),
             Contains("op layer1.norm1.grad: forward_of 99999 is out of range"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "logits").shape[1] = DimId(77); }),
             Contains("tensor logits: dimension 77 is out of range"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "logits").producer = OpId(99999); }),
             Contains("tensor logits: producer 99999 is out of range"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "d_logits").gradient_of = TensorId(99999); }),
             Contains("tensor d_logits: gradient_of 99999 is out of range"));
}

TEST_CASE("verify finds sizes, names and blocks that can't be", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) { g.dims[2].size = 0; }), Contains("dimension hidden: size 0"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "head").name = "cross_entropy"; }),
             Contains("op cross_entropy: the name is used twice"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "logits").name.clear(); }), Contains("has no name"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "head").block = 4; }),
             Contains("op head: block 4 is outside 0 to 3"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "logits").block = -1; }),
             Contains("tensor logits: block -1 is outside 0 to 3"));
}

TEST_CASE("verify finds ops in an order that can't run", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) { std::swap(op(g, "layer1.norm1"), op(g, "layer1.qkv")); }),
             Contains("op layer1.qkv: reads layer1.norm1.output before "));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "head").phase = Phase::kBackward; }),
             Contains("op cross_entropy: forward op after a backward op"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "layer1.norm1.grad").forward_of = OpId(); }),
             Contains("op layer1.norm1.grad: backward op without forward_of"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "head").forward_of = OpId(0); }),
             Contains("op head: only backward ops have a forward_of"));
}

TEST_CASE("verify finds producers that disagree with the ops", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "logits").producer = OpId(0); }),
             Contains("op head: writes logits, whose producer is embedding.tokens"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "token_ids").producer = OpId(0); }),
             Contains("tensor token_ids: its producer embedding.tokens doesn't write it"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "layer1.norm2").outputs[0] = id(g, "layer1.norm1.output"); }),
             Contains("op layer1.norm2: writes layer1.norm1.output a second time") &&
                 Contains("op layer1.gate_up: reads layer1.norm2.output which no op makes"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "layer1.norm1").outputs[0] = id(g, "head.weight"); }),
             Contains("op layer1.norm1: writes head.weight, which is an input, a parameter or state"));
  CHECK_THAT(faults_after([](Graph& g) {
               g.tensors.push_back(g[id(g, "logits")]);
               g.tensors.back().name = "orphan";
               g.tensors.back().producer = OpId();
             }),
             Contains("tensor orphan: no op makes it"));
}

TEST_CASE("verify finds gradients that don't fit", "[graph][verify]") {
  CHECK_THAT(faults_after(
                 [](Graph& g) { std::swap(tensor(g, "d_logits").shape[0], tensor(g, "d_logits").shape[1]); }),
             Contains("tensor d_logits: isn't shaped like logits, to which it belongs"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "d_logits").gradient_of = TensorId(); }),
             Contains("tensor d_logits: gradient_of is not set"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "logits").gradient_of = TensorId(0); }),
             Contains("tensor logits: gradient_of is set"));
  CHECK_THAT(faults_after([](Graph& g) { tensor(g, "d_head.weight").gradient_of = id(g, "logits"); }),
             Contains("tensor d_head.weight: belongs to logits, which isn't a parameter") &&
                 Contains("tensor head.weight: the parameter has 0 gradients; expected one"));
}

TEST_CASE("verify finds parameters without their one update", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) {
               g.ops.erase(g.ops.begin() + static_cast<std::ptrdiff_t>(op_index(g, "head.weight.adamw")));
             }),
             Contains("tensor head.weight: the parameter has 0 optimiser ops; expected one"));
  CHECK_THAT(
      faults_after([](Graph& g) { op(g, "head.weight.adamw").inputs[2] = id(g, "embedding.table.master"); }),
      Contains("op head.weight.adamw: embedding.table.master isn't state of head.weight"));
  CHECK_THAT(faults_after([](Graph& g) { op(g, "head.weight.adamw").inputs[1] = id(g, "head.weight.m"); }),
             Contains("op head.weight.adamw: head.weight.m isn't the gradient of head.weight"));
}

TEST_CASE("verify wants one loss that every input reaches", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) {
               g.tensors.push_back(g[id(g, "labels")]);
               g.tensors.back().name = "unused";
             }),
             Contains("tensor unused: the input doesn't reach the loss"));
  Graph graph;
  CHECK(verify(graph) == std::vector<std::string>{"0 losses; expected one cross-entropy op"});
}

TEST_CASE("verify reports every fault at once", "[graph][verify]") {
  const std::string faults = faults_after([](Graph& g) {
    op(g, "head").block = 9;
    op(g, "layer1.norm1").inputs.pop_back();
    tensor(g, "logits").producer = OpId(0);
  });
  CHECK_THAT(faults, Contains("op head: block 9") && Contains("op layer1.norm1: has 1 inputs") &&
                         Contains("op head: writes logits, whose producer"));
}

TEST_CASE("verify knows the shape rule of each op kind", "[graph][verify]") {
  // For each kind: replacing the shape of one of its tensors by a foreign one is found.
  TransformerConfig config = test::tiny_gpt2();
  config.residual_dropout = 0.1;
  config.qk_norm = true;
  const Graph gpt2 = build_training_graph(config, DType::kBf16);
  const Graph llama = training();
  TransformerConfig with_experts = test::tiny_experts();
  with_experts.experts.shared_ffn = 5;
  with_experts.experts.shared_gate = true;
  with_experts.residual_scale = 0.5;
  const Graph experts = build_training_graph(with_experts, DType::kBf16);
  const Graph latent = build_training_graph(test::tiny_latent(), DType::kBf16);
  std::vector<char> tried(static_cast<std::size_t>(OpKind::kAdamW) + 1, 0);
  for (const Graph* sound : {&gpt2, &llama, &experts, &latent}) {
    REQUIRE(verify(*sound).empty());
    for (std::size_t i = 0; i < sound->ops.size(); ++i) {
      const OpKind kind = sound->ops[i].kind;
      if (tried[static_cast<std::size_t>(kind)]++) continue;
      Graph broken = *sound;
      Op& damaged = broken.ops[i];
      const TensorId last = damaged.outputs.empty() ? damaged.inputs.back() : damaged.outputs.back();
      broken.tensors[last.index()].shape.insert(broken.tensors[last.index()].shape.begin(), DimId(5));
      const std::vector<std::string> faults = verify(broken);
      INFO(to_string(kind) << ", " << damaged.name);
      CHECK(std::any_of(faults.begin(), faults.end(), [&](const std::string& fault) {
        return fault.starts_with("op " + damaged.name + ": ");
      }));

      Graph extra = *sound;
      extra.ops[i].inputs.push_back(extra.ops[i].inputs[0]);
      const std::vector<std::string> arity = verify(extra);
      CHECK(std::any_of(arity.begin(), arity.end(), [&](const std::string& fault) {
        return fault.starts_with("op " + damaged.name + ": ");
      }));
    }
  }
  CHECK(std::count(tried.begin(), tried.end(), 0) == 0);
}

TEST_CASE("a matmul dimension stands in two of its three tensors, or in all", "[graph][verify]") {
  CHECK_THAT(faults_after([](Graph& g) {
               Tensor& weight = tensor(g, "layer1.mlp.down_weight");
               weight.shape[0] = weight.shape[1];
             }),
             Contains("op layer1.down: pair 0: dimension ffn doesn't stand once in two or all three of "
                      "[batch, sequence, ffn], [hidden, hidden] and [batch, sequence, hidden]"));
}

TEST_CASE("verify knows what else experts and latent attention need", "[graph][verify]") {
  TransformerConfig config = test::tiny_experts();
  config.experts.groups = 3;
  config.experts.top_groups = 2;
  config.experts.balancing_bias = true;
  const Graph sound = build_training_graph(config, DType::kBf16);
  const auto faults_of = [](Graph graph, const std::function<void(Graph&)>& damage) {
    damage(graph);
    std::string text;
    for (const std::string& fault : verify(graph)) text += fault + "\n";
    return text;
  };
  const auto faults = [&](const std::function<void(Graph&)>& damage) { return faults_of(sound, damage); };
  CHECK(faults([](Graph&) {}) == "");
  CHECK_THAT(faults([](Graph& g) { g.dims.push_back({"more_experts", DimRole::kExperts, 4}); }),
             Contains("dimension more_experts: has the role of experts"));
  CHECK_THAT(faults([](Graph& g) { op(g, "layer1.route").attributes.groups = 4; }),
             Contains("op layer1.route: 2 picks out of 2 of 4 groups of 6 experts"));
  CHECK_THAT(faults([](Graph& g) { op(g, "layer1.route").attributes.top_groups = 4; }),
             Contains("op layer1.route: 2 picks out of 4 of 3 groups"));
  CHECK_THAT(faults([](Graph& g) {
               std::swap(tensor(g, "layer1.experts.rows").shape[0],
                         tensor(g, "layer1.experts.rows").shape[1]);
             }),
             Contains("op layer1.dispatch: the rows have shape [slots, experts, hidden]"));
  CHECK_THAT(faults([](Graph& g) { op(g, "layer1.attention").attributes.window = -1; }),
             Contains("op layer1.attention: has a negative window"));
  CHECK_THAT(faults([](Graph& g) {
               op(g, "layer1.attention").attributes.window = 3;
               op(g, "layer1.attention").attributes.chunk = 3;
             }),
             Contains("op layer1.attention: has both a window and chunks"));
  CHECK_THAT(faults([](Graph& g) {
               op(g, "layer1.attention").attributes.window = 3;
               op(g, "layer1.attention").attributes.causal = false;
             }),
             Contains("op layer1.attention: has a window or chunks and isn't causal"));
  CHECK_THAT(faults([](Graph& g) { op(g, "layer1.norm1").attributes.weight = false; }),
             Contains("op layer1.norm1: has 2 inputs"));

  const Graph latent = build_training_graph(test::tiny_latent(), DType::kBf16);
  CHECK_THAT(faults_of(latent, [](Graph& g) { tensor(g, "layer1.attention.k").shape[3] = DimId(2); }),
             Contains("op layer1.k_concat: 5 and 2 don't add up to 12"));
}

#include "model/transformer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "tests/model/transformer_shapes.hpp"

using namespace orrery;

namespace {

std::string shape_text(const Graph& graph, const Tensor& tensor) {
  std::string text;
  for (const DimId dim : tensor.shape) text += (text.empty() ? "" : ",") + graph[dim].name;
  return text;
}

// "qkv matmul: output.of.norm1[b,s,hidden] …" of one block's forward ops, one a line.
std::string forward_text(const Graph& graph, std::int32_t block) {
  std::string text;
  for (const Op& op : graph.ops) {
    if (op.block != block || op.phase != Phase::kForward) continue;
    text += op.name + ":";
    for (const TensorId input : op.inputs) text += " " + graph[input].name;
    text += " ->";
    for (const TensorId output : op.outputs) text += " " + graph[output].name;
    text += "\n";
  }
  return text;
}

std::string shape_of(const Graph& graph, std::string_view name) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == name) return shape_text(graph, tensor);
  }
  return "no such tensor";
}

std::int64_t parameters(const TransformerConfig& config) {
  const Graph graph = build_forward(config, DType::kBf16);
  CHECK(verify(graph).empty());
  return parameter_count(graph);
}

}  // namespace

TEST_CASE("a Llama layer is eleven ops", "[transformer]") {
  const Graph graph = build_forward(test::tiny_llama(), DType::kBf16);
  CHECK(forward_text(graph, 0) == "embedding.tokens: token_ids embedding.table -> embedding.tokens.output\n");
  CHECK(forward_text(graph, 2) ==
        "layer2.norm1: layer1.output layer2.norm1.weight -> layer2.norm1.output\n"
        "layer2.qkv: layer2.norm1.output layer2.attention.q_weight layer2.attention.k_weight "
        "layer2.attention.v_weight -> layer2.attention.q layer2.attention.k layer2.attention.v\n"
        "layer2.rope: layer2.attention.q layer2.attention.k -> layer2.attention.q_rotated "
        "layer2.attention.k_rotated\n"
        "layer2.attention: layer2.attention.q_rotated layer2.attention.k_rotated layer2.attention.v -> "
        "layer2.attention.context layer2.attention.lse\n"
        "layer2.attention_out: layer2.attention.context layer2.attention.out_weight -> "
        "layer2.attention.output\n"
        "layer2.attention_add: layer1.output layer2.attention.output -> layer2.residual\n"
        "layer2.norm2: layer2.residual layer2.norm2.weight -> layer2.norm2.output\n"
        "layer2.gate_up: layer2.norm2.output layer2.mlp.gate_weight layer2.mlp.up_weight -> layer2.mlp.gate "
        "layer2.mlp.up\n"
        "layer2.gated: layer2.mlp.gate layer2.mlp.up -> layer2.mlp.gated\n"
        "layer2.down: layer2.mlp.gated layer2.mlp.down_weight -> layer2.mlp.output\n"
        "layer2.mlp_add: layer2.residual layer2.mlp.output -> layer2.output\n");
  CHECK(forward_text(graph, 3) ==
        "final_norm: layer2.output final_norm.weight -> final_norm.output\n"
        "head: final_norm.output head.weight -> logits\n"
        "cross_entropy: logits labels -> loss loss.lse\n");
  CHECK(shape_of(graph, "layer1.attention.q_weight") == "hidden,heads,head_dim");
  CHECK(shape_of(graph, "layer1.attention.k_weight") == "hidden,kv_heads,head_dim");
  CHECK(shape_of(graph, "layer1.attention.out_weight") == "heads,head_dim,hidden");
  CHECK(shape_of(graph, "layer1.attention.lse") == "batch,sequence,heads");
  CHECK(shape_of(graph, "head.weight") == "hidden,vocab");
  CHECK(shape_of(graph, "loss") == "");
}

TEST_CASE("a GPT-2 layer has biases, two MLP matrices and dropout", "[transformer]") {
  TransformerConfig config = test::tiny_gpt2();
  config.residual_dropout = config.embedding_dropout = 0.1;
  const Graph graph = build_forward(config, DType::kFp16);
  CHECK(verify(graph).empty());
  CHECK(forward_text(graph, 0) ==
        "embedding.tokens: token_ids embedding.table -> embedding.tokens.output\n"
        "embedding.positions: embedding.tokens.output embedding.position_table -> "
        "embedding.positions.output\n"
        "embedding.dropout: embedding.positions.output -> embedding.dropout.output embedding.dropout.mask\n");
  const std::string layer = forward_text(graph, 1);
  CHECK_THAT(layer, Catch::Contains("layer1.norm1: embedding.dropout.output layer1.norm1.weight "
                                    "layer1.norm1.bias -> layer1.norm1.output\n"));
  CHECK_THAT(layer, Catch::Contains("layer1.fc1: layer1.norm2.output layer1.mlp.fc1_weight "
                                    "layer1.mlp.fc1_bias -> layer1.mlp.fc1\n"));
  CHECK_THAT(layer, Catch::Contains("layer1.activation: layer1.mlp.fc1 -> layer1.mlp.activated\n"));
  CHECK_THAT(layer, Catch::Contains("layer1.mlp_add: layer1.residual layer1.mlp_dropout.output ->"));
  CHECK_THAT(layer, !Catch::Contains("rope"));
  CHECK_THAT(forward_text(graph, 3), Catch::Contains("head: final_norm.output embedding.table -> logits\n"));
  // Multi-head attention: k is divided by heads, like q.
  CHECK(shape_of(graph, "layer1.attention.k_weight") == "hidden,heads,head_dim");
  CHECK(shape_of(graph, "layer1.attention.k_bias") == "heads,head_dim");
}

TEST_CASE("parallel residuals take the layer's input", "[transformer]") {
  TransformerConfig neox = test::tiny_llama();
  neox.parallel_residual = true;
  const std::string two_norms = forward_text(build_forward(neox, DType::kBf16), 1);
  CHECK_THAT(two_norms, Catch::Contains("layer1.norm2: embedding.tokens.output layer1.norm2.weight"));
  CHECK_THAT(
      two_norms,
      Catch::Contains("layer1.branch_add: layer1.attention.output layer1.mlp.output -> layer1.branches"));

  TransformerConfig gptj = neox;
  gptj.shared_input_norm = true;
  const std::string one_norm = forward_text(build_forward(gptj, DType::kBf16), 1);
  CHECK_THAT(one_norm, !Catch::Contains("norm2"));
  CHECK_THAT(one_norm, Catch::Contains("layer1.gate_up: layer1.norm1.output"));
}

TEST_CASE("norms of q and k stand before the rotation", "[transformer]") {
  TransformerConfig config = test::tiny_llama();
  config.qk_norm = true;
  config.rotary_fraction = 0.5;
  config.rope_theta = 1e6;
  const Graph graph = build_forward(config, DType::kBf16);
  CHECK(verify(graph).empty());
  CHECK(shape_of(graph, "layer1.q_norm.weight") == "head_dim");
  CHECK_THAT(forward_text(graph, 1),
             Catch::Contains("layer1.rope: layer1.q_norm.output layer1.k_norm.output"));
  const auto rope =
      std::find_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) { return op.kind == OpKind::kRope; });
  CHECK(rope->attributes.rotary_fraction == 0.5);
  CHECK(rope->attributes.rope_theta == 1e6);
}

TEST_CASE("an embedding narrower than the model is projected in and out", "[transformer]") {
  TransformerConfig config = test::tiny_gpt2();
  config.embedding_dim = 7;
  const Graph graph = build_forward(config, DType::kBf16);
  CHECK(verify(graph).empty());
  CHECK(shape_of(graph, "embedding.table") == "vocab,embedding");
  CHECK(shape_of(graph, "embedding.project_weight") == "embedding,hidden");
  CHECK(shape_of(graph, "head.project_weight") == "hidden,embedding");
  CHECK_THAT(forward_text(graph, 3), Catch::Contains("head: head.project.output embedding.table"));
}

TEST_CASE("a layer of experts", "[transformer]") {
  TransformerConfig config = test::tiny_experts();
  config.ffn = 10;
  config.experts.layers = {false, true};
  config.experts.shared_ffn = 5;
  config.experts.shared_gate = config.experts.router_fp32 = true;
  config.experts.balancing_bias = true;
  const Graph graph = build_training_graph(config, DType::kBf16);
  CHECK(verify(graph).empty());
  CHECK_THAT(forward_text(graph, 1), Catch::Contains("layer1.gate_up: ") && !Catch::Contains("experts"));
  CHECK_THAT(
      forward_text(graph, 2),
      Catch::Contains(
          "layer2.router: layer2.norm2.output layer2.experts.router_weight -> layer2.experts.logits\n"
          "layer2.route: layer2.experts.logits layer2.experts.balancing_bias -> layer2.experts.weights "
          "layer2.experts.picks\n"
          "layer2.dispatch: layer2.norm2.output layer2.experts.picks -> layer2.experts.rows "
          "layer2.experts.place\n"
          "layer2.experts_gate_up: layer2.experts.rows layer2.experts.gate_weight layer2.experts.up_weight "
          "-> "
          "layer2.experts.gate layer2.experts.up\n"
          "layer2.experts_gated: layer2.experts.gate layer2.experts.up -> layer2.experts.gated\n"
          "layer2.experts_down: layer2.experts.gated layer2.experts.down_weight -> layer2.experts.output\n"
          "layer2.combine: layer2.experts.output layer2.experts.place layer2.experts.weights -> "
          "layer2.experts.combined\n"
          "layer2.shared_gate_up: layer2.norm2.output layer2.shared.gate_weight layer2.shared.up_weight -> "
          "layer2.shared.gate layer2.shared.up\n"
          "layer2.shared_gated: layer2.shared.gate layer2.shared.up -> layer2.shared.gated\n"
          "layer2.shared_down: layer2.shared.gated layer2.shared.down_weight -> layer2.shared.output\n"
          "layer2.shared_gate: layer2.norm2.output layer2.shared.own_gate_weight -> layer2.shared.own_gate\n"
          "layer2.shared_gate_apply: layer2.shared.own_gate layer2.shared.output -> "
          "layer2.shared.gated_output\n"
          "layer2.shared_add: layer2.experts.combined layer2.shared.gated_output -> layer2.mlp.output\n"
          "layer2.mlp_add: layer2.residual layer2.mlp.output -> layer2.output\n"));
  CHECK(shape_of(graph, "layer2.experts.router_weight") == "hidden,experts");
  CHECK(shape_of(graph, "layer2.experts.gate_weight") == "experts,hidden,expert_ffn");
  CHECK(shape_of(graph, "layer2.experts.down_weight") == "experts,expert_ffn,hidden");
  CHECK(shape_of(graph, "layer2.experts.rows") == "experts,slots,hidden");
  CHECK(shape_of(graph, "layer2.experts.picks") == "batch,sequence,top_k");
  CHECK(shape_of(graph, "layer2.shared.own_gate") == "batch,sequence");
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == "layer2.experts.weights") CHECK(tensor.dtype == DType::kFp32);
    if (tensor.name == "layer2.experts.place") CHECK(tensor.dtype == DType::kInt32);
    if (tensor.name == "layer2.experts.balancing_bias") CHECK(tensor.kind == TensorKind::kBuffer);
  }
}

TEST_CASE("a layer of latent attention", "[transformer]") {
  const Graph graph = build_training_graph(test::tiny_latent(), DType::kBf16);
  CHECK(verify(graph).empty());
  CHECK_THAT(
      forward_text(graph, 1),
      Catch::Contains(
          "layer1.q_down: layer1.norm1.output layer1.attention.q_down_weight -> layer1.attention.q_latent\n"
          "layer1.q_latent_norm: layer1.attention.q_latent layer1.q_latent_norm.weight -> "
          "layer1.q_latent_norm.output\n"
          "layer1.q_up: layer1.q_latent_norm.output layer1.attention.q_plain_weight "
          "layer1.attention.q_rope_weight -> layer1.attention.q_plain layer1.attention.q_rope\n"
          "layer1.kv_down: layer1.norm1.output layer1.attention.kv_down_weight "
          "layer1.attention.k_rope_weight -> layer1.attention.kv_latent layer1.attention.k_rope\n"
          "layer1.kv_latent_norm: layer1.attention.kv_latent layer1.kv_latent_norm.weight -> "
          "layer1.kv_latent_norm.output\n"
          "layer1.kv_up: layer1.kv_latent_norm.output layer1.attention.k_plain_weight "
          "layer1.attention.v_weight -> layer1.attention.k_plain layer1.attention.v\n"
          "layer1.q_rotate: layer1.attention.q_rope -> layer1.attention.q_rope_rotated\n"
          "layer1.k_rotate: layer1.attention.k_rope -> layer1.attention.k_rope_rotated\n"
          "layer1.q_concat: layer1.attention.q_plain layer1.attention.q_rope_rotated -> layer1.attention.q\n"
          "layer1.k_concat: layer1.attention.k_plain layer1.attention.k_rope_rotated -> layer1.attention.k\n"
          "layer1.attention: layer1.attention.q layer1.attention.k layer1.attention.v -> "
          "layer1.attention.context layer1.attention.lse\n"));
  CHECK(shape_of(graph, "layer1.attention.k_rope_rotated") == "batch,sequence,shared_key,rope_dim");
  CHECK(shape_of(graph, "layer1.attention.k") == "batch,sequence,heads,head_dim");
  CHECK(shape_of(graph, "layer1.attention.context") == "batch,sequence,heads,value_dim");
  CHECK(shape_of(graph, "layer1.attention.out_weight") == "heads,value_dim,hidden");
}

TEST_CASE("layers may differ in window and rotation", "[transformer]") {
  TransformerConfig config = test::tiny_llama();
  config.local.window = 3;
  config.local.layers = {true, false};
  config.local.rope_theta = 77;
  config.unrotated_layers = {false, true};
  const Graph graph = build_forward(config, DType::kBf16);
  CHECK_THAT(forward_text(graph, 1), Catch::Contains("layer1.rope"));
  CHECK_THAT(forward_text(graph, 2), !Catch::Contains("layer2.rope"));
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kRope) CHECK(op.attributes.rope_theta == 77);
    if (op.kind == OpKind::kAttention) CHECK(op.attributes.window == (op.block == 1 ? 3 : 0));
  }
}

TEST_CASE("published parameter counts", "[transformer]") {
  CHECK(parameters(test::llama3_8b()) == 8'030'261'248);
  CHECK(parameters(test::llama("llama-3.1-70b", 8192, 80, 64, 8, 28672, 128256)) == 70'553'706'496);
  CHECK(parameters(test::llama("llama-3.1-405b", 16384, 126, 128, 8, 53248, 128256)) == 405'853'388'800);
  CHECK(parameters(test::gpt2("gpt2", 768, 12, 12)) == 124'439'808);
  CHECK(parameters(test::gpt2("gpt2-xl", 1600, 48, 25)) == 1'557'611'200);

  TransformerConfig opt = test::gpt2("opt-1.3b", 2048, 24, 32, 50272);
  opt.max_positions = 2048;
  opt.position_offset = 2;
  CHECK(parameters(opt) == 1'315'758'080);

  TransformerConfig qwen2 = test::llama("qwen2-7b", 3584, 28, 28, 4, 18944, 152064);
  qwen2.qkv_bias = true;
  CHECK(parameters(qwen2) == 7'615'616'512);

  TransformerConfig qwen3 = test::llama("qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936);
  qwen3.head_dim = 128;
  qwen3.qk_norm = qwen3.tied_head = true;
  CHECK(parameters(qwen3) == 596'049'920);

  TransformerConfig pythia = test::gpt2("pythia-1b", 2048, 16, 8, 50304);
  pythia.positions = PositionKind::kRope;
  pythia.rotary_fraction = 0.25;
  pythia.parallel_residual = true;
  pythia.tied_head = false;
  CHECK(parameters(pythia) == 1'011'781'632);
}

TEST_CASE("check names every field that doesn't fit", "[transformer]") {
  const auto faults = [](auto&& change) {
    TransformerConfig config = test::tiny_llama();
    change(config);
    std::string text;
    for (const std::string& fault : check(config)) text += fault + "\n";
    return text;
  };
  using C = TransformerConfig;
  using Catch::Contains;
  CHECK(faults([](C&) {}) == "");
  CHECK(faults([](C& c) { c.hidden = 0, c.layers = -1; }) ==
        "hidden is 0; expected 1 to 1073741824\nlayers is -1; expected 1 to 10000\n");
  CHECK_THAT(faults([](C& c) { c.kv_heads = 3; }), Contains("heads 4 don't divide by kv_heads 3"));
  CHECK_THAT(faults([](C& c) { c.rotary_fraction = 0; }), Contains("rotary_fraction is 0"));
  CHECK_THAT(faults([](C& c) { c.rotary_fraction = 0.25; }),
             Contains("rotary_fraction 0.25 of head_dim 4 is 1 dimensions; expected an even number"));
  CHECK_THAT(faults([](C& c) { c.rope_theta = -1; }), Contains("rope_theta is -1"));
  CHECK_THAT(faults([](C& c) { c.norm_epsilon = 0; }), Contains("norm_epsilon is 0"));
  CHECK_THAT(faults([](C& c) { c.residual_dropout = 1; }), Contains("residual_dropout is 1"));
  CHECK_THAT(faults([](C& c) { c.embedding_dropout = -0.1; }), Contains("embedding_dropout is -0.1"));
  CHECK_THAT(faults([](C& c) { c.shared_input_norm = true; }), Contains("without parallel_residual"));
  CHECK_THAT(faults([](C& c) { c.embedding_dim = -5; }), Contains("embedding_dim is -5"));
  CHECK_THAT(faults([](C& c) { c.hidden = c.ffn = 1 << 30; }), Contains("parameters; expected at most"));
  const auto of_experts = [](auto&& change) {
    TransformerConfig config = test::tiny_experts();
    change(config);
    return fmt::format("{}", fmt::join(check(config), "\n"));
  };
  CHECK(of_experts([](C&) {}) == "");
  CHECK_THAT(of_experts([](C& c) { c.experts.per_token = 7; }),
             Contains("experts.per_token is 7; expected 1 to 6"));
  CHECK_THAT(of_experts([](C& c) { c.experts.ffn = 0; }), Contains("experts.ffn is 0"));
  CHECK_THAT(of_experts([](C& c) { c.experts.groups = 4; }), Contains("doesn't divide by experts.groups 4"));
  CHECK_THAT(of_experts([](C& c) { c.experts.groups = 6; }),
             Contains("experts.per_token 2 is more than 1 groups"));
  CHECK_THAT(of_experts([](C& c) { c.experts.layers = {true}; }), Contains("experts.layers names 1 layers"));
  CHECK_THAT(of_experts([](C& c) { c.experts.layers = {true, false}; }), Contains("ffn is 0"));
  CHECK_THAT(of_experts([](C& c) { c.experts.scale = 0; }), Contains("experts.scale is 0"));
  CHECK_THAT(of_experts([](C& c) { c.experts.shared_gate = true; }), Contains("without experts.shared_ffn"));
  const auto of_latent = [](auto&& change) {
    TransformerConfig config = test::tiny_latent();
    change(config);
    return fmt::format("{}", fmt::join(check(config), "\n"));
  };
  CHECK(of_latent([](C&) {}) == "");
  CHECK_THAT(of_latent([](C& c) { c.latent.value_dim = 0; }), Contains("latent.value_dim is 0"));
  CHECK_THAT(of_latent([](C& c) { c.latent.plain_dim = 4; }), Contains("head_dim is 7; expected"));
  CHECK_THAT(of_latent([](C& c) { c.latent.rope_dim = 3, c.head_dim = 8; }),
             Contains("expected an even number"));
  CHECK_THAT(of_latent([](C& c) { c.kv_heads = 2; }), Contains("latent attention makes keys for every head"));
  CHECK_THAT(of_latent([](C& c) { c.qk_norm = true; }), Contains("qk_norm with latent attention"));
  CHECK_THAT(faults([](C& c) { c.local.window = c.local.chunk = 4; }), Contains("together with local.chunk"));
  CHECK_THAT(faults([](C& c) { c.local.window = -4; }), Contains("local.window is -4"));
  CHECK_THAT(faults([](C& c) { c.unrotated_layers = {true}; }), Contains("unrotated_layers names 1 layers"));
  CHECK_THAT(faults([](C& c) { c.qk_norm = c.qk_norm_unweighted = true; }),
             Contains("another norm of q and k"));
  CHECK_THAT(faults([](C& c) { c.pre_norm = false; }), Contains("pre_norm and post_norm are both off"));
  CHECK_THAT(faults([](C& c) { c.logit_scale = 0; }), Contains("logit_scale is 0"));
  CHECK_THAT(faults([](C& c) { c.activation = Activation::kClampedSilu; }),
             Contains("activation_limit is 0"));
  CHECK_THAT(faults([](C& c) { c.activation = Activation::kTanhCap; }), Contains("isn't one of an MLP"));
  // Learned positions have no rotation to check.
  CHECK(faults([](C& c) { c.positions = PositionKind::kLearned, c.rotary_fraction = 0; }) == "");
}

TEST_CASE("a shape that doesn't fit is no graph", "[transformer]") {
  TransformerConfig config = test::tiny_llama();
  config.kv_heads = 3;
  CHECK_THROWS_WITH(build_forward(config, DType::kBf16), Catch::Contains("tiny: heads 4 don't divide"));
}

TEST_CASE("parameters and activations have the compute type", "[transformer]") {
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kFp16);
  for (const Tensor& tensor : graph.tensors) {
    INFO(tensor.name);
    const bool fp32 = tensor.kind == TensorKind::kParameterGradient ||
                      tensor.kind == TensorKind::kOptimizerState || tensor.name.ends_with("lse") ||
                      tensor.name == "loss";
    const bool ids = tensor.kind == TensorKind::kInput;
    CHECK(tensor.dtype == (fp32 ? DType::kFp32 : ids ? DType::kInt64 : DType::kFp16));
  }
}

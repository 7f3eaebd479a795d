// Gradients of the backward graph against differences of the loss, for models small enough to run on
// plain loops in double.

#include <catch2/catch.hpp>
#include <cmath>

#include "model/transformer.hpp"
#include "tests/model/autodiff_interpreter.hpp"
#include "tests/model/transformer_shapes.hpp"

using namespace orrery;
using test::initial_values;
using test::run_phase;
using test::Values;

namespace {

struct Model {
  explicit Model(const TransformerConfig& config, double slot_factor = 1)
      : graph(add_backward(build_forward(config, DType::kFp32))), sizes(bind(graph, 2, 5, slot_factor)) {
    REQUIRE(verify(graph).empty());
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      if (graph.tensors[i].name == "loss") loss_id = i;
    }
  }

  double loss(Values& values) const {
    run_phase(graph, sizes, Phase::kForward, values);
    return values[loss_id][0];
  }

  Graph graph;
  Sizes sizes;
  std::size_t loss_id = 0;
};

// Every token's worst-case number of rows for each expert: nothing is dropped.
constexpr double kDropless = 1e9;

// Every parameter, at a few of its elements. A router's choice may not change within a step, which random
// weights make as good as certain: scores would have to tie within 1e-5.
void check_gradients(const TransformerConfig& config, double slot_factor = kDropless) {
  const Model model(config, slot_factor);
  Values values = initial_values(model.graph, model.sizes, 7);
  CHECK(model.loss(values) > 0);
  run_phase(model.graph, model.sizes, Phase::kBackward, values);
  Values moved = values;
  // Truncation ~ step², rounding ~ 1e-16 / step: both near 1e-10 for values of order 1.
  const double step = 1e-5;
  for (std::size_t i = 0; i < model.graph.tensors.size(); ++i) {
    const Tensor& gradient = model.graph.tensors[i];
    if (gradient.kind != TensorKind::kParameterGradient) continue;
    std::vector<double>& weight = moved[gradient.gradient_of.index()];
    for (std::size_t e = 0; e < weight.size(); e += 1 + weight.size() / 4) {
      const double was = weight[e];
      weight[e] = was + step;
      const double up = model.loss(moved);
      weight[e] = was - step;
      const double down = model.loss(moved);
      weight[e] = was;
      INFO(config.name << " " << gradient.name << "[" << e << "]");
      CHECK(values[i][e] == Approx((up - down) / (2 * step)).margin(1e-7).epsilon(1e-5));
    }
  }
}

}  // namespace

TEST_CASE("gradients of a Llama with grouped queries", "[autodiff][numeric]") {
  check_gradients(test::tiny_llama());
}

TEST_CASE("gradients of a GPT-2 with a tied head and dropout", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_gpt2();
  config.residual_dropout = config.embedding_dropout = 0.25;
  check_gradients(config);
}

TEST_CASE("gradients with norms of q and k and half of each head rotated", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_llama();
  config.qk_norm = config.tied_head = true;
  config.rotary_fraction = 0.5;
  check_gradients(config);
}

TEST_CASE("gradients of parallel residuals", "[autodiff][numeric]") {
  TransformerConfig neox = test::tiny_gpt2();
  neox.positions = PositionKind::kRope;
  neox.parallel_residual = true;
  neox.tied_head = false;
  check_gradients(neox);
  TransformerConfig gptj = neox;
  gptj.shared_input_norm = gptj.head_bias = true;
  gptj.qkv_bias = gptj.attention_out_bias = false;
  check_gradients(gptj);
}

TEST_CASE("gradients through a projected embedding and ReLU", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_gpt2();
  config.embedding_dim = 7;
  config.position_offset = 2;
  config.activation = Activation::kRelu;
  check_gradients(config);
}

TEST_CASE("gradients through experts", "[autodiff][numeric]") {
  TransformerConfig mixtral = test::tiny_experts();
  check_gradients(mixtral);
  // As many slots as rows on average: some tokens are dropped by some experts, and their gradients with them.
  check_gradients(mixtral, 1);
  TransformerConfig without_gate = mixtral;
  without_gate.gated_mlp = false;
  without_gate.experts.normalized = false;
  without_gate.experts.router_bias = without_gate.experts.expert_bias = true;
  check_gradients(without_gate);
}

TEST_CASE("gradients through experts of DeepSeek's kind", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_experts();
  config.ffn = 10;
  config.experts.layers = {false, true};
  config.experts.shared_ffn = 5;
  config.experts.groups = 3;
  config.experts.top_groups = 2;
  config.experts.scale = 2.5;
  check_gradients(config);  // As in DeepSeek-V2: softmax, groups by their best.
  config.experts.score = RouterScore::kSigmoid;
  config.experts.balancing_bias = true;
  check_gradients(config);
  config.experts.normalized = false;
  config.experts.shared_gate = true;
  check_gradients(config);
}

TEST_CASE("gradients where a router scales the experts' inputs", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_experts();
  config.experts.score = RouterScore::kSigmoid;
  config.experts.normalized = false;
  config.experts.scale_inputs = true;
  config.experts.shared_ffn = 5;
  check_gradients(config);
  config.experts.per_token = 1;
  check_gradients(config, 1);
}

TEST_CASE("gradients of latent attention", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_latent();
  check_gradients(config);
  config.latent.q_dim = 0;
  config.qkv_bias = true;
  config.score_scale = 0.3;
  check_gradients(config);
}

TEST_CASE("gradients of attention within a window and within chunks", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_llama();
  config.local.window = 2;
  check_gradients(config);
  config.local.layers = {true, false};
  config.local.rope_theta = 100;
  config.unrotated_layers = {false, true};
  check_gradients(config);
  config.local.window = 0;
  config.local.chunk = 3;
  check_gradients(config);
}

TEST_CASE("gradients of capped scores and logits, and of sinks", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_llama();
  config.attention_softcap = 0.5;
  config.logit_softcap = 1.5;
  config.attention_sinks = true;
  check_gradients(config);
}

TEST_CASE("gradients of norms of other kinds and places", "[autodiff][numeric]") {
  TransformerConfig gemma = test::tiny_llama();
  gemma.post_norm = true;
  gemma.embedding_scale = 3;
  gemma.residual_scale = 0.5;
  gemma.logit_scale = 2;
  check_gradients(gemma);
  TransformerConfig olmo = test::tiny_llama();
  olmo.pre_norm = false;
  olmo.post_norm = olmo.qk_norm_across_heads = true;
  check_gradients(olmo);
  TransformerConfig cohere = test::tiny_llama();
  cohere.norm = NormKind::kLayer;
  cohere.norm_bias = false;
  cohere.parallel_residual = cohere.shared_input_norm = true;
  check_gradients(cohere);
  TransformerConfig llama4 = test::tiny_llama();
  llama4.qk_norm_unweighted = true;
  llama4.unrotated_layers = {false, true};
  check_gradients(llama4);
}

TEST_CASE("gradients of a clamped gate", "[autodiff][numeric]") {
  TransformerConfig config = test::tiny_llama();
  config.activation = Activation::kClampedSilu;
  config.activation_limit = 0.7;
  check_gradients(config);
}

TEST_CASE("gradients of micro-batches add up", "[autodiff][numeric]") {
  const Model model(test::tiny_gpt2());
  Values once = initial_values(model.graph, model.sizes, 7);
  model.loss(once);
  run_phase(model.graph, model.sizes, Phase::kBackward, once);
  Values twice = once;
  run_phase(model.graph, model.sizes, Phase::kBackward, twice);
  for (std::size_t i = 0; i < model.graph.tensors.size(); ++i) {
    if (model.graph.tensors[i].kind != TensorKind::kParameterGradient) continue;
    for (std::size_t e = 0; e < once[i].size(); ++e)
      CHECK(twice[i][e] == Approx(2 * once[i][e]).margin(1e-12));
  }
}

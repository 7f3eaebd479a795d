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
  explicit Model(const TransformerConfig& config)
      : graph(add_backward(build_forward(config, DType::kFp32))), sizes(bind(graph, 2, 5)) {
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

// Every parameter, at a few of its elements.
void check_gradients(const TransformerConfig& config) {
  const Model model(config);
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

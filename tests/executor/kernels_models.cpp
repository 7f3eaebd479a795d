// Every op of whole training steps, kernels against the double-precision reference.
#include <algorithm>
#include <map>

#include "model/transformer.hpp"
#include "tests/executor/kernel_cases.hpp"
#include "tests/executor/tiny_models.hpp"

using namespace orrery;
using namespace orrery::test;

namespace {

// Widths that are no multiples of the vectors', more positions than a tile of queries.
TransformerConfig wider(TransformerConfig config) {
  config.layers = 1;
  config.hidden = 40;
  config.heads = 4;
  config.kv_heads = config.kv_heads == 2 ? 2 : 4;
  config.head_dim = 20;
  config.ffn = 52;
  config.vocab = 61;
  config.max_positions = 128;
  if (config.experts.count != 0) {
    config.experts.count = 8;
    config.experts.ffn = 24;
    config.experts.layers.clear();
    if (config.experts.shared_ffn != 0) config.experts.shared_ffn = 36;
  }
  if (config.latent.kv_dim != 0) {
    config.head_dim = 24;
    config.latent = {20, 28, 14, 10, 18};
  }
  return config;
}

Values floats(std::size_t n, Random& random) {
  Values values(n);
  for (double& x : values) x = static_cast<double>(static_cast<float>(random.uniform() - 0.5));
  return values;
}

// Follows the reference through the step: both get the reference's results, rounded to floats, as inputs.
void check_model(const TransformerConfig& config, std::int64_t batch, std::int64_t sequence,
                 double slot_factor = 1.0) {
  INFO(config.name);
  REQUIRE(check(config).empty());
  const Graph graph = add_backward(build_forward(config, DType::kFp32));
  host::OpView view;
  view.sizes = bind(graph, batch, sequence, slot_factor);
  Random random(7);
  std::vector<Values> values(graph.tensors.size());
  for (std::size_t t = 0; t < values.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    const TensorId id(static_cast<std::int64_t>(t));
    values[t] = floats(static_cast<std::size_t>(element_count(graph, id, view.sizes)), random);
    for (double& x : values[t]) {
      if (tensor.kind == TensorKind::kInput)
        x = static_cast<double>(random.between(0, config.vocab - 1));
      else if (is_whole(tensor.dtype))
        x = 0;
    }
  }
  const auto of = [&](const std::vector<TensorId>& tensors) {
    std::vector<Values> found;
    for (const TensorId tensor : tensors) found.push_back(values[tensor.index()]);
    return found;
  };
  for (const Op& op : graph.ops) {
    std::vector<Values> outputs = of(op.outputs);
    check_op(graph, op, view, of(op.inputs), outputs);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      for (double& x : outputs[i]) x = static_cast<double>(static_cast<float>(x));
      values[op.outputs[i].index()] = outputs[i];
    }
  }
}

}  // namespace

TEST_CASE("kernels of a llama", "[kernels]") { check_model(wider(tiny_llama()), 1, 67); }

TEST_CASE("kernels of a GPT-2", "[kernels]") {
  TransformerConfig config = wider(tiny_gpt());
  config.attention_out_bias = config.mlp_bias = true;
  check_model(config, 2, 21);
}

TEST_CASE("kernels of experts", "[kernels]") {
  TransformerConfig config = wider(tiny_moe());
  check_model(config, 2, 13);
  // Biases, a gated shared expert, weights on the way in, and slots that run out.
  config.experts.router_bias = config.experts.expert_bias = config.experts.shared_gate = true;
  config.experts.scale_inputs = true;
  config.experts.normalized = false;
  check_model(config, 2, 13, 0.75);
}

TEST_CASE("kernels of latent attention behind a sigmoid router", "[kernels]") {
  check_model(wider(tiny_latent()), 2, 17);
}

TEST_CASE("kernels of what attention can have besides", "[kernels]") {
  TransformerConfig config = wider(tiny_llama());
  config.attention_sinks = true;
  config.attention_softcap = 1.5;
  config.logit_softcap = 3;
  config.local.window = 9;
  config.qk_norm = true;
  config.rotary_fraction = 0.5;
  config.activation = Activation::kClampedSilu;
  config.activation_limit = 0.75;
  config.embedding_scale = 2;
  check_model(config, 1, 67);
  config.local.window = 0;
  config.local.chunk = 16;
  config.qk_norm = false;
  config.qk_norm_across_heads = true;
  config.score_scale = 0.3;
  config.activation = Activation::kRelu;
  check_model(config, 1, 67);
}

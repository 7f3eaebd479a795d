#pragma once
// Models of some thousand weights, for running whole plans in double precision.

#include "model/transformer.hpp"

namespace orrery::test {

// Grouped-query attention, gated MLP, untied head, a vocabulary that has to be padded.
inline TransformerConfig tiny_llama() {
  TransformerConfig config;
  config.name = "tiny-llama";
  config.hidden = 8;
  config.layers = 8;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn = 12;
  config.vocab = 13;
  config.max_positions = 64;
  return config;
}

// Multi-head attention, biases everywhere, learned positions, tied head, dropout.
inline TransformerConfig tiny_gpt() {
  TransformerConfig config;
  config.name = "tiny-gpt";
  config.hidden = 8;
  config.layers = 8;
  config.heads = 2;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.ffn = 16;
  config.vocab = 10;
  config.max_positions = 16;
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.gated_mlp = false;
  config.activation = Activation::kGelu;
  config.tied_head = true;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
  config.residual_dropout = 0.1;
  return config;
}

// Experts in every second layer, a shared one beside them.
inline TransformerConfig tiny_moe() {
  TransformerConfig config = tiny_llama();
  config.name = "tiny-moe";
  config.experts.count = 4;
  config.experts.per_token = 2;
  config.experts.ffn = 8;
  config.experts.shared_ffn = 4;
  config.experts.layers = {false, true, false, true, false, true, false, true};
  return config;
}

// Latent attention with experts behind a sigmoid router, as DeepSeek-V3 has them.
inline TransformerConfig tiny_latent() {
  TransformerConfig config = tiny_llama();
  config.name = "tiny-latent";
  config.kv_heads = 4;
  config.latent.kv_dim = 6;
  config.latent.q_dim = 6;
  config.latent.plain_dim = 2;
  config.latent.rope_dim = 2;
  config.latent.value_dim = 4;
  config.experts.count = 4;
  config.experts.per_token = 2;
  config.experts.ffn = 8;
  config.experts.score = RouterScore::kSigmoid;
  config.experts.scale = 1.5;
  config.experts.groups = 2;
  config.experts.balancing_bias = true;
  return config;
}

// Attention and MLP side by side, behind one norm, as GPT-J has them.
inline TransformerConfig tiny_parallel() {
  TransformerConfig config = tiny_llama();
  config.name = "tiny-parallel";
  config.parallel_residual = config.shared_input_norm = true;
  return config;
}

}  // namespace orrery::test

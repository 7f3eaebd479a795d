#pragma once
// Model shapes that several tests use, written out by hand.

#include <string>
#include <utility>

#include "model/transformer.hpp"

namespace orrery::test {

inline TransformerConfig llama(std::string name, std::int64_t hidden, std::int64_t layers, std::int64_t heads,
                               std::int64_t kv_heads, std::int64_t ffn, std::int64_t vocab) {
  TransformerConfig c;
  c.name = std::move(name);
  c.hidden = hidden;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.ffn = ffn;
  c.vocab = vocab;
  c.max_positions = 8192;
  return c;
}

inline TransformerConfig llama3_8b() { return llama("llama-3-8b", 4096, 32, 32, 8, 14336, 128256); }

// Learned positions, layer norms, biases, tied head, no dropout.
inline TransformerConfig gpt2(std::string name, std::int64_t hidden, std::int64_t layers, std::int64_t heads,
                              std::int64_t vocab = 50257) {
  TransformerConfig c = llama(std::move(name), hidden, layers, heads, heads, 4 * hidden, vocab);
  c.max_positions = 1024;
  c.norm = NormKind::kLayer;
  c.positions = PositionKind::kLearned;
  c.gated_mlp = false;
  c.activation = Activation::kGelu;
  c.tied_head = c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
  return c;
}

// Smaller than any real model: sizes that differ from one another, so that a mix-up shows.
inline TransformerConfig tiny_llama() {
  TransformerConfig c = llama("tiny", 12, 2, 4, 2, 10, 11);
  c.head_dim = 4;
  c.max_positions = 8;
  return c;
}

inline TransformerConfig tiny_gpt2() {
  TransformerConfig c = gpt2("tiny-gpt2", 12, 2, 3, 11);
  c.max_positions = 8;
  c.ffn = 10;
  return c;
}

// Experts in every layer: 2 of 6 for each token.
inline TransformerConfig tiny_experts() {
  TransformerConfig c = tiny_llama();
  c.name = "tiny-experts";
  c.ffn = 0;
  c.experts.count = 6;
  c.experts.per_token = 2;
  c.experts.ffn = 7;
  return c;
}

// Latent attention whose values are narrower than its keys: heads of 5 without and 2 with position.
inline TransformerConfig tiny_latent() {
  TransformerConfig c = tiny_llama();
  c.name = "tiny-latent";
  c.kv_heads = c.heads;
  c.head_dim = 7;
  c.latent = {.kv_dim = 6, .q_dim = 8, .plain_dim = 5, .rope_dim = 2, .value_dim = 3};
  return c;
}

}  // namespace orrery::test

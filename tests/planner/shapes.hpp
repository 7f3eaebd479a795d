#pragma once
// Small models and plans that are checked by hand.

#include "model/transformer.hpp"
#include "planner/plan.hpp"

namespace orrery::test {

// Llama-like: grouped-query attention, gated MLP, untied head.
inline TransformerConfig small_llama(std::int64_t layers = 4) {
  TransformerConfig config;
  config.name = "small-llama";
  config.hidden = 512;
  config.layers = layers;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.ffn = 1536;
  config.vocab = 2048;
  config.max_positions = 4096;
  return config;
}

inline PlanShorthand shorthand(std::int32_t tp, std::int32_t pp, std::int32_t dp, std::int64_t microbatches) {
  PlanShorthand plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = dp;
  plan.settings.microbatch_size = 2;
  plan.settings.sequence = 256;
  plan.global_batch = microbatches * dp * plan.settings.microbatch_size;
  return plan;
}

}  // namespace orrery::test

// Families whose layers have experts. Their routers differ in what scores are (softmax, sigmoid), whether a
// token's weights are normalised and what they are multiplied by.

#include <fmt/format.h>

#include <utility>

#include "model/hf_shapes.hpp"

namespace orrery {
namespace {

struct ExpertDefaults {
  std::int64_t count = 0;  // 0: the file has to say it.
  std::int64_t per_token = 0;
  std::int64_t ffn = 0;
};

std::int64_t size_or_standard(const HfReader& r, HfReader::Names names, std::int64_t standard) {
  return standard == 0 ? r.size(names) : r.size_or(names, standard);
}

void read_counts(const HfReader& r, TransformerConfig& c, ExpertDefaults standard = {}) {
  c.experts.count =
      size_or_standard(r, {"num_local_experts", "num_experts", "n_routed_experts"}, standard.count);
  c.experts.per_token = size_or_standard(r, {"num_experts_per_tok", "experts_per_token"}, standard.per_token);
  for (const char* field : {"router_aux_loss_coef", "aux_loss_alpha"}) {
    const double weight = r.quiet_number_or({field}, 0);
    if (weight != 0)
      r.note(fmt::format("{} {}: the loss that balances experts isn't in the graph", field, weight));
  }
}

// Where all experts have the MLP's own width no layer has a plain MLP.
void experts_in_every_layer(TransformerConfig& c) { c.experts.ffn = std::exchange(c.ffn, 0); }

// The first layers have a plain MLP, of the others every n-th experts.
void read_dense_layers(const HfReader& r, TransformerConfig& c) {
  const double first = r.quiet_number_or({"first_k_dense_replace"}, 0);
  const std::int64_t every = r.optional_size({"moe_layer_freq"}).value_or(1);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    c.experts.layers.push_back(static_cast<double>(i) >= first && i % every == 0);
  }
}

// Every n-th layer has experts, but for those that are listed.
void read_sparse_step(const HfReader& r, TransformerConfig& c) {
  const std::int64_t step = r.optional_size({"decoder_sparse_step"}).value_or(1);
  for (std::int64_t i = 0; i < c.layers; ++i) c.experts.layers.push_back((i + 1) % step == 0);
  const JsonField* dense = r.fields().find("mlp_only_layers");
  if (dense == nullptr) return;
  for (const JsonField& layer : dense->items) {
    if (layer.kind != JsonField::Kind::kInteger || layer.integer < 0 || layer.integer >= c.layers) {
      r.fields().wrong("mlp_only_layers",
                       fmt::format("expected layers from 0 to {}, found {}", c.layers - 1, layer.shown()));
    }
    c.experts.layers[static_cast<std::size_t>(layer.integer)] = false;
  }
}

void read_shared_experts(const HfReader& r, TransformerConfig& c, std::int64_t standard) {
  const std::int64_t shared = r.optional_size({"n_shared_experts"}).value_or(standard);
  c.experts.shared_ffn = shared * c.experts.ffn;
}

// Groups, scale, normalisation and the balancing bias as DeepSeek's files name them.
void read_deepseek_router(const HfReader& r, TransformerConfig& c, bool sigmoid) {
  ExpertsConfig& e = c.experts;
  const std::string score = r.fields().present("scoring_func") ? r.word_or({"scoring_func"}, "")
                            : sigmoid                          ? "sigmoid"
                                                               : "softmax";
  if (score != "sigmoid" && score != "softmax") {
    r.fields().wrong("scoring_func", fmt::format("\"{}\": expected softmax or sigmoid", score));
  }
  e.score = score == "sigmoid" ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  e.normalized = r.quiet_flag_or({"norm_topk_prob"}, sigmoid);
  e.scale = r.quiet_number_or({"routed_scaling_factor"}, 1.0);
  const std::string method = r.fields().present("topk_method") ? r.word_or({"topk_method"}, "")
                             : sigmoid                         ? "noaux_tc"
                                                               : "greedy";
  if (method != "noaux_tc" && method != "greedy" && method != "group_limited_greedy") {
    r.fields().wrong("topk_method",
                     fmt::format("\"{}\": expected greedy, group_limited_greedy or noaux_tc", method));
  }
  e.balancing_bias = method == "noaux_tc";
  if (method == "greedy") return;
  const std::int64_t groups = r.optional_size({"n_group"}).value_or(1);
  const std::int64_t top_groups = r.optional_size({"topk_group"}).value_or(groups);
  if (groups > e.count || top_groups > groups) {
    r.fields().wrong("topk_group", fmt::format("{} of {} groups of {} experts", top_groups, groups, e.count));
  }
  e.groups = static_cast<std::int32_t>(groups);
  e.top_groups = static_cast<std::int32_t>(top_groups);
}

}  // namespace

void read_mixtral(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.kv_heads = 8});
  read_counts(r, c, {.count = 8, .per_token = 2});
  experts_in_every_layer(c);
}

void read_phimoe(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.kv_heads = 8});
  c.norm = NormKind::kLayer;
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.head_bias = r.quiet_flag_or({"lm_head_bias"}, false);
  read_counts(r, c, {.count = 16, .per_token = 2});
  experts_in_every_layer(c);
  refuse_dropout(r, "hidden_dropout");
  r.note("phimoe picks its experts by SparseMixer: other weights at the same work; the graph has softmax's");
}

void read_olmoe(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.qk_norm_across_heads = true;
  read_counts(r, c, {.count = 64, .per_token = 8});
  c.experts.normalized = r.quiet_flag_or({"norm_topk_prob"}, false);
  experts_in_every_layer(c);
}

void read_qwen2_moe(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.kv_heads = 16});
  c.qkv_bias = r.quiet_flag_or({"qkv_bias"}, true);
  read_counts(r, c, {.count = 60, .per_token = 4});
  c.experts.ffn = r.size_or({"moe_intermediate_size"}, 1408);
  c.experts.shared_ffn = r.size_or({"shared_expert_intermediate_size"}, 5632);
  c.experts.shared_gate = true;
  c.experts.normalized = r.quiet_flag_or({"norm_topk_prob"}, false);
  read_sparse_step(r, c);
}

void read_qwen3_moe(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.kv_heads = 4});
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.qk_norm = true;
  read_counts(r, c, {.count = 128, .per_token = 8});
  c.experts.ffn = r.size_or({"moe_intermediate_size"}, 768);
  c.experts.normalized = r.quiet_flag_or({"norm_topk_prob"}, false);
  read_sparse_step(r, c);
}

void read_deepseek(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  read_counts(r, c);
  c.experts.ffn = r.size({"moe_intermediate_size"});
  read_shared_experts(r, c, 0);
  read_deepseek_router(r, c, false);
  read_dense_layers(r, c);
}

namespace {

void read_deepseek_latent(const HfReader& r, TransformerConfig& c, bool sigmoid) {
  read_latent_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  read_counts(r, c);
  c.experts.ffn = r.size({"moe_intermediate_size"});
  read_shared_experts(r, c, 0);
  read_deepseek_router(r, c, sigmoid);
  read_dense_layers(r, c);
  note_multi_token_prediction(r, {"num_nextn_predict_layers"});
}

}  // namespace

void read_deepseek_v2(const HfReader& r, TransformerConfig& c) { read_deepseek_latent(r, c, false); }
void read_deepseek_v3(const HfReader& r, TransformerConfig& c) { read_deepseek_latent(r, c, true); }

void read_glm4_moe(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  read_rotation(r, c, 0.5);
  c.qkv_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.qk_norm = r.quiet_flag_or({"use_qk_norm"}, false);
  read_counts(r, c);
  c.experts.ffn = r.size({"moe_intermediate_size"});
  read_shared_experts(r, c, 1);
  read_deepseek_router(r, c, true);
  read_dense_layers(r, c);
  note_multi_token_prediction(r, {"num_nextn_predict_layers"});
}

// q and k are normalised over all heads; "per_layer" is the file's word for that.
void read_minimax_m2(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  const auto rotated = r.optional_size({"rotary_dim"});
  if (rotated) read_rotation(r, c, static_cast<double>(*rotated) / static_cast<double>(c.head_dim));
  c.qk_norm_across_heads = r.quiet_flag_or({"use_qk_norm"}, true);
  if (r.word_or({"qk_norm_type"}, "per_layer") != "per_layer") {
    r.fields().wrong("qk_norm_type", "expected \"per_layer\", one norm over all heads");
  }
  read_counts(r, c);
  experts_in_every_layer(c);
  read_deepseek_router(r, c, true);
  c.experts.balancing_bias = r.quiet_flag_or({"use_routing_bias"}, true);
  if (r.quiet_number_or({"shared_intermediate_size"}, 0) != 0) {
    c.experts.shared_ffn = r.size({"shared_intermediate_size"});
  }
  note_multi_token_prediction(r, {"num_mtp_modules"});
}

// Biases everywhere, in experts and router too, and a softmax over the picked experts alone, which is the
// normalised one over all. The gate's clamp and the factor 1.702 stand in the modelling file.
void read_gpt_oss(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.head_dim = 64, .kv_heads = 8});
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, true);
  c.attention_sinks = true;
  c.activation = Activation::kClampedSilu;
  c.activation_limit = r.quiet_number_or({"swiglu_limit"}, 7.0);
  read_counts(r, c, {.count = 128, .per_token = 4});
  c.experts.router_bias = c.experts.expert_bias = true;
  experts_in_every_layer(c);
}

// The language model. Three of four layers attend within chunks and rotate; the fourth does neither.
void read_llama4(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.head_dim = 128});
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.qk_norm_unweighted = r.quiet_flag_or({"use_qk_norm"}, true);
  read_counts(r, c, {.count = 16, .per_token = 1});
  c.experts.ffn = c.experts.shared_ffn = c.ffn;
  c.ffn = r.optional_size({"intermediate_size_mlp"}).value_or(c.ffn);
  c.experts.score = RouterScore::kSigmoid;
  c.experts.normalized = false;
  c.experts.scale_inputs = true;
  const std::int64_t step = r.optional_size({"interleave_moe_layer_step"}).value_or(1);
  const std::int64_t global_every = r.optional_size({"no_rope_layer_interval"}).value_or(4);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    c.experts.layers.push_back((i + 1) % step == 0);
    c.local.layers.push_back((i + 1) % global_every != 0);
  }
  if (const std::vector<bool> rotated = r.layer_flags("no_rope_layers"); !rotated.empty()) {
    c.local.layers = rotated;
  }
  c.unrotated_layers = c.local.layers;
  c.unrotated_layers.flip();
  c.local.chunk = r.size_or({"attention_chunk_size"}, 8192);
  if (r.quiet_flag_or({"attn_temperature_tuning"}, true)) {
    r.note(
        "attn_temperature_tuning: queries beyond 8192 tokens scaled by position in layers without RoPE; the "
        "graph leaves them as they are");
  }
}

}  // namespace orrery

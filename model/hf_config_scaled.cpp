// Families that scale what flows (Granite, MiniCPM, Gemma, Cohere) or have their norms in other places (Gemma
// 2 and 3, OLMo 2 and 3).

#include <cmath>

#include "model/hf_shapes.hpp"

namespace orrery {
namespace {

// Gemma's norms multiply by 1 + weight: the same function of another parameter, at the same work.
void read_gemma_shape(const HfReader& r, TransformerConfig& c, AttentionDefaults standard) {
  read_llama_shape(r, c, standard);
  read_activation(r, c, {"hidden_activation", "hidden_act"}, "gelu_pytorch_tanh");
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
}

void read_query_scale(const HfReader& r, TransformerConfig& c) {
  c.score_scale = 1 / std::sqrt(r.quiet_number_or({"query_pre_attn_scalar"}, 256));
}

void read_softcaps(const HfReader& r, TransformerConfig& c, double scores, double logits) {
  // Null switches a cap off.
  const auto cap = [&](const char* field, double standard) {
    const bool null = r.fields().all().contains(field) && !r.fields().present(field);
    return null ? 0.0 : r.quiet_number_or({field}, standard);
  };
  c.attention_softcap = cap("attn_logit_softcapping", scores);
  c.logit_softcap = cap("final_logit_softcapping", logits);
}

void read_granite_scales(const HfReader& r, TransformerConfig& c) {
  c.embedding_scale = r.quiet_number_or({"embedding_multiplier"}, 1);
  c.residual_scale = r.quiet_number_or({"residual_multiplier"}, 1);
  c.score_scale = r.quiet_number_or({"attention_multiplier"}, 1);
  const double divisor = r.quiet_number_or({"logits_scaling"}, 1);
  if (!(divisor > 0)) r.fields().wrong("logits_scaling", "logits are divided by it; expected above 0");
  c.logit_scale = 1 / divisor;
}

void read_minicpm_scales(const HfReader& r, TransformerConfig& c) {
  c.embedding_scale = r.quiet_number_or({"scale_emb"}, 1);
  c.residual_scale = r.quiet_number_or({"scale_depth"}, 1) / std::sqrt(static_cast<double>(c.layers));
  const std::int64_t base = r.optional_size({"dim_model_base"}).value_or(1);
  c.logit_scale = static_cast<double>(base) / static_cast<double>(c.hidden);
}

}  // namespace

void read_gemma(const HfReader& r, TransformerConfig& c) {
  read_gemma_shape(r, c, {.head_dim = 256, .kv_heads = 16});
}

void read_gemma2(const HfReader& r, TransformerConfig& c) {
  read_gemma_shape(r, c, {.head_dim = 256, .kv_heads = 4});
  c.post_norm = true;
  read_query_scale(r, c);
  read_softcaps(r, c, 50, 30);
}

void read_gemma3(const HfReader& r, TransformerConfig& c) {
  read_gemma_shape(r, c, {.head_dim = 256, .kv_heads = 4});
  c.post_norm = c.qk_norm = true;
  c.rope_theta = r.quiet_number_or({"rope_theta"}, 1e6);
  c.local.rope_theta = r.quiet_number_or({"rope_local_base_freq"}, 10000);
  read_query_scale(r, c);
  read_softcaps(r, c, 0, 0);
}

// Layer norms without bias, one for attention and MLP side by side.
void read_cohere(const HfReader& r, TransformerConfig& c) {
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 8192);
  c.gated_mlp = true;
  read_norm(r, c, NormKind::kLayer, {"layer_norm_eps"}, 1e-5);
  c.norm_bias = false;
  read_activation(r, c, {"hidden_act"}, "silu");
  read_head_dim(r, c);
  c.kv_heads = r.size_or({"num_key_value_heads"}, c.heads);
  read_rotation(r, c, 1.0);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.parallel_residual = c.shared_input_norm = true;
  c.logit_scale = r.number_or({"logit_scale"}, 0.0625);
}

// And layers without window don't rotate.
void read_cohere2(const HfReader& r, TransformerConfig& c) {
  read_cohere(r, c);
  const std::int64_t global_every =
      r.optional_size({"sliding_window_pattern"}).value_or(find_hf_family("cohere2")->global_every);
  const JsonField* types = r.fields().find("layer_types");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const bool listed = types != nullptr && i < std::ssize(types->items);
    c.unrotated_layers.push_back(listed ? types->items[static_cast<std::size_t>(i)].text == "full_attention"
                                        : (i + 1) % global_every == 0);
  }
}

void read_granite(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  read_attention_and_mlp_bias(r, c);
  read_granite_scales(r, c);
}

// Its layers are attention, or the file is refused; the shared MLP is the only one where there are no
// experts.
void read_granite_hybrid(const HfReader& r, TransformerConfig& c) {
  read_granite(r, c);
  const double experts = r.quiet_number_or({"num_local_experts"}, 0);
  const std::int64_t shared = r.size({"shared_intermediate_size"});
  if (experts != 0) {
    c.experts.count = r.size({"num_local_experts"});
    c.experts.per_token = r.size({"num_experts_per_tok"});
    c.experts.ffn = c.ffn;
    c.experts.shared_ffn = shared;
  }
  c.ffn = shared;
}

void read_minicpm(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  read_minicpm_scales(r, c);
}

void read_minicpm3(const HfReader& r, TransformerConfig& c) {
  read_latent_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  read_minicpm_scales(r, c);
}

// Norms after attention and MLP alone, and one of q (of k) over all heads.
void read_olmo2(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.pre_norm = false;
  c.post_norm = c.qk_norm_across_heads = true;
}

}  // namespace orrery

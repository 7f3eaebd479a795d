// What several families of models share in how their config.json is read.

#include "model/hf_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"

namespace orrery {

void read_activation(const HfReader& r, TransformerConfig& c, HfReader::Names names,
                     std::string_view standard) {
  const std::string word = r.word_or(names, standard);
  // The tanh approximation of GELU costs what GELU costs; they differ by less than 1e-3.
  if (word == "silu" || word == "swish") {
    c.activation = Activation::kSilu;
  } else if (word == "relu") {
    c.activation = Activation::kRelu;
  } else if (word == "gelu" || word == "gelu_new" || word == "gelu_fast" || word == "gelu_pytorch_tanh" ||
             word == "gelu_python") {
    c.activation = Activation::kGelu;
  } else {
    fail(ErrorKind::kInput, "{}: {} \"{}\": expected silu, gelu (or a variant) or relu", r.fields().place(),
         fmt::join(names, " or "), word);
  }
}

// Absent, the hidden size is divided among the heads, unless the family has a `standard` of its own.
void read_head_dim(const HfReader& r, TransformerConfig& c, std::int64_t standard) {
  if (standard != 0) {
    c.head_dim = r.size_or({"head_dim"}, standard);
    return;
  }
  if (const auto given = r.optional_size({"head_dim", "kv_channels"})) {
    c.head_dim = *given;
    return;
  }
  if (c.hidden % c.heads != 0) {
    r.fields().wrong("head_dim", fmt::format("is missing, and hidden size {} doesn't divide by {} heads",
                                             c.hidden, c.heads));
  }
  c.head_dim = c.hidden / c.heads;
}

// Null or absent, the library takes four times the hidden size.
void read_wide_ffn(const HfReader& r, TransformerConfig& c, HfReader::Names names) {
  c.ffn = r.optional_size(names).value_or(4 * c.hidden);
}

void read_rotation(const HfReader& r, TransformerConfig& c, double fraction) {
  c.positions = PositionKind::kRope;
  c.rope_theta = r.quiet_number_or({"rope_theta", "rotary_emb_base", "rope_parameters.rope_theta"}, 10000.0);
  const double head_dim = static_cast<double>(c.head_dim);
  const double part = r.quiet_number_or(
      {"partial_rotary_factor", "rotary_pct", "rope_parameters.partial_rotary_factor"}, fraction);
  // The library rounds the rotated dimensions down.
  c.rotary_fraction = std::floor(part * head_dim + 1e-9) / head_dim;
  for (const char* path : {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"}) {
    const JsonField* type = r.fields().find(path);
    if (type == nullptr || type->text == "default") continue;
    r.note(fmt::format("{} {}: other angles at the same work; the graph has those of plain RoPE", path,
                       type->shown()));
    break;
  }
}

void read_norm(const HfReader& r, TransformerConfig& c, NormKind kind, HfReader::Names names,
               double standard) {
  c.norm = kind;
  c.norm_epsilon = r.number_or(names, standard);
}

void note_multi_token_prediction(const HfReader& r, HfReader::Names names) {
  const double layers = r.quiet_number_or(names, 0);
  if (layers == 0) return;
  r.note(
      fmt::format("{} {}: the graph has the main model; multi-token prediction adds layers and losses to its "
                  "training",
                  *names.begin(), layers));
}

// Dropouts whose place the config can't say.
void refuse_dropout(const HfReader& r, const char* field) {
  if (r.quiet_number_or({field}, 0) == 0) return;
  r.fields().wrong(field, "dropout once a layer isn't supported; expected 0");
}

// Llama and what copied its shape: RMS norms, SwiGLU, full rotation, multi-head unless said otherwise.
void read_llama_shape(const HfReader& r, TransformerConfig& c, AttentionDefaults standard) {
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 2048);
  c.gated_mlp = true;
  read_norm(r, c, NormKind::kRms, {"rms_norm_eps"}, 1e-6);
  read_activation(r, c, {"hidden_act", "hidden_activation"}, "silu");
  read_head_dim(r, c, standard.head_dim);
  // Null means as many as heads even where absence doesn't.
  const bool there = r.fields().all().contains("num_key_value_heads");
  c.kv_heads =
      r.size_or({"num_key_value_heads"}, there || standard.kv_heads == 0 ? c.heads : standard.kv_heads);
  read_rotation(r, c, 1.0);
}

void read_latent_shape(const HfReader& r, TransformerConfig& c) {
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 2048);
  c.gated_mlp = true;
  read_norm(r, c, NormKind::kRms, {"rms_norm_eps"}, 1e-6);
  read_activation(r, c, {"hidden_act"}, "silu");
  LatentConfig& latent = c.latent;
  latent.kv_dim = r.size({"kv_lora_rank"});
  latent.q_dim = r.optional_size({"q_lora_rank"}).value_or(0);
  latent.plain_dim = r.size({"qk_nope_head_dim"});
  latent.rope_dim = r.size({"qk_rope_head_dim"});
  latent.value_dim = r.optional_size({"v_head_dim"}).value_or(std::max<std::int64_t>(1, c.hidden / c.heads));
  c.head_dim = latent.plain_dim + latent.rope_dim;
  r.quiet_number_or({"head_dim"}, 0);  // Later files repeat the rotated part under this name.
  // Every head has keys of its own, made from the latent.
  if (r.optional_size({"num_key_value_heads"}).value_or(c.heads) != c.heads) {
    r.fields().wrong("num_key_value_heads", fmt::format("expected {}, one for each head", c.heads));
  }
  c.kv_heads = c.heads;
  read_rotation(r, c, 1.0);
}

void read_attention_and_mlp_bias(const HfReader& r, TransformerConfig& c) {
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.mlp_bias = r.quiet_flag_or({"mlp_bias"}, false);
}

}  // namespace orrery

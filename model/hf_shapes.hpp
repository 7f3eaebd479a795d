#pragma once
// Parts of the families' readers: what several of them share. `standard` is what a family takes for an absent
// field. Every function sets fields of the config from those of the file.

#include <string_view>

#include "model/hf_reader.hpp"

namespace orrery {

// What a family takes for an absent field; 0: hidden size / heads, and as many kv heads as heads.
struct AttentionDefaults {
  std::int64_t head_dim = 0;
  std::int64_t kv_heads = 0;
};

void read_activation(const HfReader& r, TransformerConfig& c, HfReader::Names names,
                     std::string_view standard);
// Absent, the hidden size is divided among the heads, unless the family has a `standard` of its own.
void read_head_dim(const HfReader& r, TransformerConfig& c, std::int64_t standard = 0);
// Null or absent, the library takes four times the hidden size.
void read_wide_ffn(const HfReader& r, TransformerConfig& c, HfReader::Names names);
// REQUIRES: head_dim is read.
void read_rotation(const HfReader& r, TransformerConfig& c, double fraction);
void read_norm(const HfReader& r, TransformerConfig& c, NormKind kind, HfReader::Names names,
               double standard);
// Layers that training adds behind the main model, which the graph leaves out, as the library does.
void note_multi_token_prediction(const HfReader& r, HfReader::Names names);
// Dropouts whose place the config can't say. THROWS unless it is 0 or absent.
void refuse_dropout(const HfReader& r, const char* field);
// Llama and what copied its shape: RMS norms, SwiGLU, full rotation, multi-head unless said otherwise.
void read_llama_shape(const HfReader& r, TransformerConfig& c, AttentionDefaults standard = {});
// The same with multi-head latent attention.
void read_latent_shape(const HfReader& r, TransformerConfig& c);
void read_attention_and_mlp_bias(const HfReader& r, TransformerConfig& c);

// Families with experts, by model_type (hf_config_experts.cpp).
void read_deepseek(const HfReader& r, TransformerConfig& c);
void read_deepseek_v2(const HfReader& r, TransformerConfig& c);
void read_deepseek_v3(const HfReader& r, TransformerConfig& c);
void read_glm4_moe(const HfReader& r, TransformerConfig& c);
void read_gpt_oss(const HfReader& r, TransformerConfig& c);
void read_llama4(const HfReader& r, TransformerConfig& c);
void read_minimax_m2(const HfReader& r, TransformerConfig& c);
void read_mixtral(const HfReader& r, TransformerConfig& c);
void read_olmoe(const HfReader& r, TransformerConfig& c);
void read_phimoe(const HfReader& r, TransformerConfig& c);
void read_qwen2_moe(const HfReader& r, TransformerConfig& c);
void read_qwen3_moe(const HfReader& r, TransformerConfig& c);

// Families with scales and with norms in other places (hf_config_scaled.cpp).
void read_cohere(const HfReader& r, TransformerConfig& c);
void read_cohere2(const HfReader& r, TransformerConfig& c);
void read_gemma(const HfReader& r, TransformerConfig& c);
void read_gemma2(const HfReader& r, TransformerConfig& c);
void read_gemma3(const HfReader& r, TransformerConfig& c);
void read_granite(const HfReader& r, TransformerConfig& c);
void read_granite_hybrid(const HfReader& r, TransformerConfig& c);
void read_minicpm(const HfReader& r, TransformerConfig& c);
void read_minicpm3(const HfReader& r, TransformerConfig& c);
void read_olmo2(const HfReader& r, TransformerConfig& c);

}  // namespace orrery

// How each family of models reads its config.json. Defaults are those of the family's config class in
// the transformers library 4.5x, or of the modelling file that the model ships with (baichuan, chatglm,
// deepseek, internlm, mimo, minicpm, minimax, qwen).

#include <fmt/format.h>

#include <string>

#include "model/hf_shapes.hpp"

namespace orrery {
namespace {

void read_llama(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  read_attention_and_mlp_bias(r, c);
}

void read_mistral(const HfReader& r, TransformerConfig& c) { read_llama_shape(r, c, {.kv_heads = 8}); }

// Biases of q, k and v are part of the architecture and no field says so.
void read_qwen2(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.kv_heads = 32});
  c.qkv_bias = true;
}

void read_qwen3(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.head_dim = 128, .kv_heads = 32});
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, false);
  c.qk_norm = true;
}

// A Qwen2 whose biases have a switch.
void read_mimo(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c, {.kv_heads = 32});
  c.qkv_bias = r.quiet_flag_or({"attention_bias"}, true);
  note_multi_token_prediction(r, {"num_nextn_predict_layers"});
}

void read_phi3(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  c.residual_dropout = r.quiet_number_or({"resid_pdrop"}, 0);
  c.embedding_dropout = r.quiet_number_or({"embd_pdrop"}, 0);
}

void read_internlm(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  c.qkv_bias = c.attention_out_bias = r.flag_or({"bias"}, true);
}

void read_baichuan(const HfReader& r, TransformerConfig& c) {
  // The 13B models (hidden size 5120) have the same model_type and no field that tells ALiBi from RoPE.
  if (c.hidden != 4096) {
    r.fields().wrong(
        "hidden_size",
        fmt::format("baichuan models of hidden size {} place positions by ALiBi, which the graph "
                    "can't express; those of 4096 can be read",
                    c.hidden));
  }
  read_llama_shape(r, c);
  if (c.vocab == 125696) {
    r.note("Baichuan 2 normalises the rows of the head's weight; that isn't in the graph");
  }
}

// GLM by its own names. The attention and MLP biases are two switches; half of each head is rotated.
void read_chatglm(const HfReader& r, TransformerConfig& c) {
  c.ffn = r.agreed_size({"ffn_hidden_size"});
  c.max_positions = r.size_or({"seq_length"}, 2048);
  c.gated_mlp = true;
  c.activation = Activation::kSilu;
  const bool rms = r.flag_or({"rmsnorm"}, true);
  read_norm(r, c, rms ? NormKind::kRms : NormKind::kLayer, {"layernorm_epsilon"}, 1e-5);
  if (!r.quiet_flag_or({"post_layer_norm"}, true)) {
    r.fields().wrong("post_layer_norm", "a model without final norm; expected true");
  }
  read_head_dim(r, c);
  c.kv_heads = r.flag_or({"multi_query_attention"}, false) ? r.size({"multi_query_group_num"}) : c.heads;
  read_rotation(r, c, 0.5);
  c.mlp_bias = c.attention_out_bias = r.flag_or({"add_bias_linear"}, false);
  c.qkv_bias = c.mlp_bias || r.flag_or({"add_qkv_bias"}, false);
  c.residual_dropout = r.quiet_number_or({"hidden_dropout"}, 0);
}

void read_glm(const HfReader& r, TransformerConfig& c) {
  read_llama_shape(r, c);
  read_rotation(r, c, 0.5);
  c.qkv_bias = r.quiet_flag_or({"attention_bias"}, false);
}

// The first Qwen: its intermediate_size counts gate and up together.
void read_qwen(const HfReader& r, TransformerConfig& c) {
  const std::int64_t both = r.agreed_size({"intermediate_size"});
  if (both % 2 != 0) r.fields().wrong("intermediate_size", "gate and up together; expected an even number");
  c.ffn = both / 2;
  c.max_positions = r.size_or({"max_position_embeddings", "seq_length"}, 8192);
  c.gated_mlp = true;
  c.activation = Activation::kSilu;
  read_norm(r, c, NormKind::kRms, {"layer_norm_epsilon"}, 1e-6);
  read_head_dim(r, c);
  c.kv_heads = c.heads;
  read_rotation(r, c, 1.0);
  c.qkv_bias = true;
  c.attention_out_bias = c.mlp_bias = !r.flag_or({"no_bias"}, true);
  c.embedding_dropout = r.quiet_number_or({"emb_dropout_prob"}, 0);
}

// Layer norms, two MLP matrices, biases everywhere.
void read_gpt_shape(const HfReader& r, TransformerConfig& c) {
  c.norm = NormKind::kLayer;
  c.norm_epsilon = 1e-5;
  c.gated_mlp = false;
  read_head_dim(r, c);
  c.kv_heads = c.heads;
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = true;
}

void read_gpt2(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);
  read_norm(r, c, NormKind::kLayer, {"layer_norm_epsilon"}, 1e-5);
  read_activation(r, c, {"activation_function"}, "gelu_new");
  read_wide_ffn(r, c, {"n_inner"});
  c.positions = PositionKind::kLearned;
  c.max_positions = r.size_or({"n_positions", "max_position_embeddings"}, 1024);
  c.residual_dropout = r.number_or({"resid_pdrop"}, 0.1);
  c.embedding_dropout = r.number_or({"embd_pdrop"}, 0.1);
}

void read_gpt_bigcode(const HfReader& r, TransformerConfig& c) {
  read_gpt2(r, c);
  if (r.flag_or({"multi_query"}, true)) c.kv_heads = 1;
}

void read_opt(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);  // OPTConfig has no epsilon: its norms have PyTorch's own 1e-5.
  read_activation(r, c, {"activation_function"}, "relu");
  c.ffn = r.agreed_size({"ffn_dim", "intermediate_size"});
  c.positions = PositionKind::kLearned;
  c.max_positions = r.size_or({"max_position_embeddings"}, 2048);
  c.position_offset = 2;  // OPTLearnedPositionalEmbedding: rows for padding that no position uses.
  const std::int64_t embedding = r.optional_size({"word_embed_proj_dim"}).value_or(c.hidden);
  c.embedding_dim = embedding == c.hidden ? 0 : embedding;
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = r.quiet_flag_or({"enable_bias"}, true);
  c.residual_dropout = r.number_or({"dropout"}, 0.1);
  if (!r.quiet_flag_or({"layer_norm_elementwise_affine"}, true)) {
    r.fields().wrong("layer_norm_elementwise_affine", "norms without weights; expected true");
  }
  if (r.quiet_flag_or({"_remove_final_layer_norm"}, false)) {
    r.fields().wrong("_remove_final_layer_norm", "a model without final norm; expected false");
  }
}

void read_gpt_neox(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);
  read_norm(r, c, NormKind::kLayer, {"layer_norm_eps"}, 1e-5);
  read_activation(r, c, {"hidden_act"}, "gelu");
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 2048);
  read_rotation(r, c, 0.25);
  c.qkv_bias = c.attention_out_bias = r.quiet_flag_or({"attention_bias"}, true);
  c.parallel_residual = r.flag_or({"use_parallel_residual"}, true);
  c.residual_dropout = c.embedding_dropout = r.quiet_number_or({"hidden_dropout"}, 0);
}

void read_gptj(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);
  read_norm(r, c, NormKind::kLayer, {"layer_norm_epsilon"}, 1e-5);
  read_activation(r, c, {"activation_function"}, "gelu_new");
  read_wide_ffn(r, c, {"n_inner"});
  c.max_positions = r.size_or({"n_positions", "max_position_embeddings"}, 2048);
  const std::int64_t rotated = r.size_or({"rotary_dim"}, 64);
  read_rotation(r, c, static_cast<double>(rotated) / static_cast<double>(c.head_dim));
  c.qkv_bias = c.attention_out_bias = false;
  c.head_bias = true;
  c.parallel_residual = c.shared_input_norm = true;
  c.residual_dropout = r.quiet_number_or({"resid_pdrop"}, 0);
  c.embedding_dropout = r.quiet_number_or({"embd_pdrop"}, 0);
}

void read_phi(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);
  read_norm(r, c, NormKind::kLayer, {"layer_norm_eps"}, 1e-5);
  read_activation(r, c, {"hidden_act"}, "gelu_new");
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 2048);
  c.kv_heads = r.optional_size({"num_key_value_heads"}).value_or(c.heads);
  read_rotation(r, c, 0.5);
  c.head_bias = true;
  c.parallel_residual = c.shared_input_norm = true;
  c.residual_dropout = r.quiet_number_or({"resid_pdrop"}, 0);
  c.embedding_dropout = r.quiet_number_or({"embd_pdrop"}, 0);
}

void read_falcon(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);
  read_norm(r, c, NormKind::kLayer, {"layer_norm_epsilon"}, 1e-5);
  c.activation = Activation::kGelu;
  if (r.fields().present("activation")) read_activation(r, c, {"activation"}, "gelu");  // Later files.
  read_wide_ffn(r, c, {"ffn_hidden_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 2048);
  read_rotation(r, c, 1.0);
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = r.flag_or({"bias"}, false);
  // The newer architecture settles what the two older switches say.
  const bool newer = r.flag_or({"new_decoder_architecture"}, false);
  const bool multi_query = r.quiet_flag_or({"multi_query"}, true);
  const bool parallel = r.quiet_flag_or({"parallel_attn"}, true);
  c.kv_heads = newer ? r.size_or({"num_kv_heads"}, c.heads) : multi_query ? 1 : c.heads;
  c.parallel_residual = newer || parallel;
  const std::int64_t norms = r.optional_size({"num_ln_in_parallel_attn"}).value_or(newer ? 2 : 1);
  c.shared_input_norm = c.parallel_residual && norms == 1;
  refuse_dropout(r, "hidden_dropout");
}

void read_starcoder2(const HfReader& r, TransformerConfig& c) {
  read_gpt_shape(r, c);
  read_norm(r, c, NormKind::kLayer, {"norm_epsilon"}, 1e-5);
  read_activation(r, c, {"hidden_act"}, "gelu_pytorch_tanh");
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 4096);
  c.kv_heads = r.size_or({"num_key_value_heads"}, 2);
  read_rotation(r, c, 1.0);
  c.qkv_bias = c.attention_out_bias = c.mlp_bias = r.flag_or({"use_bias"}, true);
  c.residual_dropout = r.quiet_number_or({"residual_dropout"}, 0);
  c.embedding_dropout = r.quiet_number_or({"embedding_dropout"}, 0);
}

// A Llama with layer norms and a quarter of each head rotated.
void read_stablelm(const HfReader& r, TransformerConfig& c) {
  c.ffn = r.agreed_size({"intermediate_size"});
  c.max_positions = r.size_or({"max_position_embeddings"}, 4096);
  c.gated_mlp = true;
  read_norm(r, c, NormKind::kLayer, {"layer_norm_eps"}, 1e-5);
  read_activation(r, c, {"hidden_act"}, "silu");
  read_head_dim(r, c);
  c.kv_heads = r.size_or({"num_key_value_heads"}, c.heads);
  read_rotation(r, c, 0.25);
  c.qkv_bias = r.flag_or({"use_qkv_bias"}, false);
  c.parallel_residual = c.shared_input_norm = r.quiet_flag_or({"use_parallel_residual"}, false);
  refuse_dropout(r, "hidden_dropout");
}

constexpr unsigned kMoe = kReadsExperts;
constexpr unsigned kDeepSeek = kReadsExperts | kReadsLatent;
constexpr std::int64_t kNoWindow = 0;

// model_type, architecture, tied by default, what it reads of mechanisms, window and its pattern, reader.
constexpr HfFamily kFamilies[] = {
    {"baichuan", "BaichuanForCausalLM", false, 0, kNoWindow, 0, read_baichuan},
    {"chatglm", "ChatGLMModel", false, 0, kNoWindow, 0, read_chatglm},
    {"codegen", "CodeGenForCausalLM", false, 0, kNoWindow, 0, read_gptj},
    {"cohere", "CohereForCausalLM", true, kReadsScales, kNoWindow, 0, read_cohere},
    {"cohere2", "Cohere2ForCausalLM", true, kReadsScales, 4096, 4, read_cohere2},
    {"deepseek", "DeepseekForCausalLM", false, kMoe, kNoWindow, 0, read_deepseek},
    {"deepseek_v2", "DeepseekV2ForCausalLM", false, kDeepSeek, kNoWindow, 0, read_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", false, kDeepSeek, kNoWindow, 0, read_deepseek_v3},
    {"falcon", "FalconForCausalLM", true, 0, kNoWindow, 0, read_falcon},
    {"gemma", "GemmaForCausalLM", true, 0, kNoWindow, 0, read_gemma},
    {"gemma2", "Gemma2ForCausalLM", true, kReadsSoftcaps, 4096, 2, read_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", true, kReadsSoftcaps, 4096, 6, read_gemma3},
    {"glm", "GlmForCausalLM", false, 0, kNoWindow, 0, read_glm},
    {"glm4_moe", "Glm4MoeForCausalLM", false, kMoe | kReadsQkNorm, kNoWindow, 0, read_glm4_moe},
    {"gpt2", "GPT2LMHeadModel", true, 0, kNoWindow, 0, read_gpt2},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", true, 0, kNoWindow, 0, read_gpt_bigcode},
    {"gpt_neox", "GPTNeoXForCausalLM", false, 0, kNoWindow, 0, read_gpt_neox},
    {"gpt_oss", "GptOssForCausalLM", false, kMoe | kReadsClampedGate, 128, 2, read_gpt_oss},
    {"gptj", "GPTJForCausalLM", false, 0, kNoWindow, 0, read_gptj},
    {"granite", "GraniteForCausalLM", false, kReadsScales, kNoWindow, 0, read_granite},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", false, kMoe | kReadsScales, kNoWindow, 0,
     read_granite_hybrid},
    {"internlm", "InternLMForCausalLM", false, 0, kNoWindow, 0, read_internlm},
    {"internlm2", "InternLM2ForCausalLM", false, 0, kNoWindow, 0, read_internlm},
    {"kimi_k2", "DeepseekV3ForCausalLM", false, kDeepSeek, kNoWindow, 0, read_deepseek_v3},
    {"llama", "LlamaForCausalLM", false, 0, kNoWindow, 0, read_llama},
    {"llama4_text", "Llama4ForCausalLM", false, kMoe | kReadsQkNorm | kReadsChunks, kNoWindow, 0,
     read_llama4},
    {"mimo", "MiMoForCausalLM", false, 0, kNoWindow, 0, read_mimo},
    {"minicpm", "MiniCPMForCausalLM", true, kReadsScales, kNoWindow, 0, read_minicpm},
    {"minicpm3", "MiniCPM3ForCausalLM", true, kReadsScales | kReadsLatent, kNoWindow, 0, read_minicpm3},
    {"minimax_m2", "MiniMaxM2ForCausalLM", false, kMoe | kReadsQkNorm, kNoWindow, 0, read_minimax_m2},
    {"mistral", "MistralForCausalLM", false, 0, 4096, 0, read_mistral},
    {"mixtral", "MixtralForCausalLM", false, kMoe, kNoWindow, 0, read_mixtral},
    {"olmo2", "Olmo2ForCausalLM", false, 0, kNoWindow, 0, read_olmo2},
    {"olmo3", "Olmo3ForCausalLM", false, 0, 4096, 4, read_olmo2},
    {"olmoe", "OlmoeForCausalLM", false, kMoe, kNoWindow, 0, read_olmoe},
    {"opt", "OPTForCausalLM", true, 0, kNoWindow, 0, read_opt},
    {"phi", "PhiForCausalLM", false, 0, kNoWindow, 0, read_phi},
    {"phi3", "Phi3ForCausalLM", false, 0, kNoWindow, 0, read_phi3},
    {"phimoe", "PhiMoEForCausalLM", false, kMoe, kNoWindow, 0, read_phimoe},
    {"qwen", "QWenLMHeadModel", false, 0, kNoWindow, 0, read_qwen},
    {"qwen2", "Qwen2ForCausalLM", false, 0, kNoWindow, 0, read_qwen2},
    {"qwen2_moe", "Qwen2MoeForCausalLM", false, kMoe, kNoWindow, 0, read_qwen2_moe},
    {"qwen3", "Qwen3ForCausalLM", false, 0, kNoWindow, 0, read_qwen3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", false, kMoe, kNoWindow, 0, read_qwen3_moe},
    {"stablelm", "StableLmForCausalLM", false, 0, kNoWindow, 0, read_stablelm},
    {"starcoder2", "Starcoder2ForCausalLM", true, 0, kNoWindow, 0, read_starcoder2},
};

}  // namespace

std::span<const HfFamily> hf_families() { return kFamilies; }

const HfFamily* find_hf_family(std::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace orrery

#pragma once
// Decoder transformers: their shape as data, read from a Hugging Face config.json or given inline,
// and the Graph built from it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"

namespace orrery {

// Above any model; a graph of this many layers still fits in memory.
inline constexpr std::int64_t kMostLayers = 10'000;

enum class PositionKind : std::uint8_t { kRope, kLearned };

// Experts in place of the MLP. Each token's k picks are dispatched to their experts, whose results return
// weighted; a shared MLP may stand beside them, which every token passes.
struct ExpertsConfig {
  std::int64_t count = 0;  // 0: none, every layer has its MLP.
  std::int64_t per_token = 0;
  std::int64_t ffn = 0;         // Of one expert.
  std::int64_t shared_ffn = 0;  // Of all shared experts together, one MLP; 0: none.
  bool shared_gate = false;     // The shared result times sigmoid(x · w) (Qwen2-MoE).
  std::vector<bool> layers;     // By layer, whether it has experts; empty: all have.

  RouterScore score = RouterScore::kSoftmax;
  bool normalized = true;                   // A token's weights sum to 1, …
  double scale = 1.0;                       // … times this.
  std::int32_t groups = 1, top_groups = 1;  // See OpAttributes.
  bool balancing_bias = false;  // Added to the scores for the choice alone, not trained (DeepSeek-V3).
  bool router_bias = false;
  bool router_fp32 = false;  // Logits and weights in fp32.
  bool expert_bias = false;
  bool scale_inputs = false;  // The weight multiplies an expert's input, not its result (Llama 4).
};

// Multi-head latent attention (DeepSeek-AI 2024, §2.1): keys and values (and queries) come out of a narrow
// latent; positions enter through rope_dim further dimensions, which have one key for all heads.
struct LatentConfig {
  std::int64_t kv_dim = 0;     // Width of the latent of keys and values; 0: plain attention.
  std::int64_t q_dim = 0;      // Of the queries'; 0: they are projected directly.
  std::int64_t plain_dim = 0;  // Of a head's q and k without position. head_dim = plain_dim + rope_dim.
  std::int64_t rope_dim = 0;   // Of a head's q and k with position.
  std::int64_t value_dim = 0;  // Of a head's v.
};

// Layers that see a part of the sequence only.
struct LocalAttentionConfig {
  std::int64_t window = 0;   // Keys that a query sees, itself included; 0: all.
  std::int64_t chunk = 0;    // Or: a query sees its own chunk's keys.
  std::vector<bool> layers;  // By layer, whether it is local; empty: all are if there is a window or chunk.
  double rope_theta = 0;     // Of local layers; 0: as in all others (Gemma 3 has two).
};

struct TransformerConfig {
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // = heads for multi-head, 1 for multi-query attention.
  std::int64_t head_dim = 0;  // Not always hidden / heads (Qwen3, Gemma).
  std::int64_t ffn = 0;       // Of layers without experts.
  std::int64_t vocab = 0;     // As trained, before padding.
  std::int64_t max_positions = 0;
  std::int64_t position_offset = 0;  // Learned positions: rows before the first position's (OPT has 2).
  std::int64_t embedding_dim = 0;    // Of the token table; 0 means hidden (OPT-350m projects).

  ExpertsConfig experts;
  LatentConfig latent;
  LocalAttentionConfig local;
  std::vector<bool> unrotated_layers;  // By layer: no RoPE there (Llama 4, SmolLM3); empty: none.

  NormKind norm = NormKind::kRms;
  bool norm_bias = true;   // Of layer norms; RMS norms have none.
  bool pre_norm = true;    // Before attention and MLP, and …
  bool post_norm = false;  // … after them, before the sum (Gemma 2; OLMo 2 has these alone).
  double norm_epsilon = 1e-5;
  PositionKind positions = PositionKind::kRope;
  double rotary_fraction = 1.0;
  double rope_theta = 10000.0;
  bool gated_mlp = true;  // SwiGLU and kin: three matrices; otherwise two.
  Activation activation = Activation::kSilu;
  bool tied_head = false;  // Head and token table are one parameter.
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool head_bias = false;
  bool qk_norm = false;               // Norm over each head's q and k before RoPE (Qwen3), …
  bool qk_norm_across_heads = false;  // … over all heads together (OLMo 2), …
  bool qk_norm_unweighted = false;    // … or after RoPE, without weights, where there is RoPE (Llama 4).
  bool attention_sinks = false;       // One trained score a head that takes of the softmax (gpt-oss).
  double attention_softcap = 0;       // Scores become c · tanh(score / c); 0: they don't (Gemma 2).
  double logit_softcap = 0;           // The same of the logits.
  double score_scale = 0;             // Of q · k; 0: 1/√head_dim.
  double embedding_scale = 1;         // Of the token embeddings (Gemma: √hidden).
  double residual_scale = 1;          // Of what attention and MLP add (Granite).
  double logit_scale = 1;
  double activation_limit = 0;     // Of Activation::kClampedSilu.
  bool parallel_residual = false;  // x + attention(norm x) + mlp(norm x) (GPT-NeoX, GPT-J, Falcon).
  bool shared_input_norm = false;  // With parallel_residual: one norm feeds both (GPT-J).
  double residual_dropout = 0.0;   // After attention and MLP.
  double embedding_dropout = 0.0;

  bool all_layers_have_experts() const;

  // What reading had to assume because the file doesn't say ("tie_word_embeddings absent: …").
  std::vector<std::string> notes;
};

// Reads a config.json. THROWS Error(kInput) naming the file and the field: not JSON, a missing or
// impossible size, or a mechanism that the graph can't express yet (ALiBi, state-space layers, …) – never
// built as if it weren't there.
TransformerConfig read_hf_config(const std::filesystem::path& file);
// The same from text; `place` stands for the file in messages.
TransformerConfig parse_hf_config(std::string_view json, std::string_view place);

// Faults in sizes, in the words of TransformerConfig's fields; empty when they fit together.
std::vector<std::string> check(const TransformerConfig& config);

// The loss of one micro-batch: embedding, layers, final norm, head, cross entropy. Batch and sequence
// stay symbolic. Parameters and activations have type `compute`.
Graph build_forward(const TransformerConfig& config, DType compute);

// Adds the backward op of every forward op that leads to the loss. Parameter gradients are fp32.
// REQUIRES: a forward graph with one cross entropy.
Graph add_backward(const Graph& graph);

// Adds one AdamW op per parameter with its fp32 master, m and v. REQUIRES: add_backward has run.
Graph add_optimizer(const Graph& graph);

// All three.
Graph build_training_graph(const TransformerConfig& config, DType compute);

}  // namespace orrery

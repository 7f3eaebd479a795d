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

enum class PositionKind : std::uint8_t { kRope, kLearned };

struct TransformerConfig {
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // = heads for multi-head, 1 for multi-query attention.
  std::int64_t head_dim = 0;  // Not always hidden / heads (Qwen3, Gemma).
  std::int64_t ffn = 0;
  std::int64_t vocab = 0;  // As trained, before padding.
  std::int64_t max_positions = 0;
  std::int64_t position_offset = 0;  // Learned positions: rows before the first position's (OPT has 2).
  std::int64_t embedding_dim = 0;    // Of the token table; 0 means hidden (OPT-350m projects).

  NormKind norm = NormKind::kRms;
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
  bool qk_norm = false;            // Norm over each head's q and k before RoPE (Qwen3).
  bool parallel_residual = false;  // x + attention(norm x) + mlp(norm x) (GPT-NeoX, GPT-J, Falcon).
  bool shared_input_norm = false;  // With parallel_residual: one norm feeds both (GPT-J).
  double residual_dropout = 0.0;   // After attention and MLP.
  double embedding_dropout = 0.0;

  // What reading had to assume because the file doesn't say ("tie_word_embeddings absent: …").
  std::vector<std::string> notes;
};

// Reads a config.json. THROWS Error(kInput) naming the file and the field: not JSON, a missing or
// impossible size, or a mechanism that the graph can't express yet (experts, latent attention, sliding
// windows, …) – never built as if it were dense.
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

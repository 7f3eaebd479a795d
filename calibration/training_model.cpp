// Which architecture a published name stands for.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "calibration/training_case.hpp"

namespace orrery {
namespace {

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// LayerNorm, learned positions, two matrices around a GELU, biases everywhere, head and table tied.
void like_gpt(TransformerConfig& config) {
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.gated_mlp = false;
  config.activation = Activation::kGelu;
  config.tied_head = true;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
}

// Parmar et al. 2024: rotary positions on half of each head, squared ReLU, no biases, nothing tied.
void like_nemotron(TransformerConfig& config) {
  config.norm = NormKind::kLayer;
  config.rotary_fraction = 0.5;
  config.gated_mlp = false;
  config.activation = Activation::kRelu;
}

// Qwen2.5: Llama with biases on q, k and v; head and table are tied up to 3B.
void like_qwen2(TransformerConfig& config, const std::string& name) {
  config.qkv_bias = true;
  config.tied_head = contains(name, "0.5b") || contains(name, "1.5b") || contains(name, "3b");
}

// Whether the name is known; Llama is what the config's defaults describe.
bool set_architecture(const std::string& name, TransformerConfig& config) {
  const bool hybrid = contains(name, "nemotron-h") || contains(name, "nemotron_3");
  if (hybrid || contains(name, "gpt oss") || contains(name, "gpt-oss")) return false;
  if (contains(name, "gpt") || contains(name, "mt-nlg") || contains(name, "bloom")) {
    like_gpt(config);
  } else if (contains(name, "nemotron")) {
    like_nemotron(config);
  } else if (contains(name, "qwen2")) {
    like_qwen2(config, name);
  } else if (contains(name, "qwen3")) {
    config.qk_norm = true;
  } else {
    return contains(name, "llama") || contains(name, "internlm");
  }
  return true;
}

// Rows whose source trained with one vocabulary but prints it only here and there.
struct KnownVocab {
  std::string_view source;
  std::int64_t vocab;
  std::string_view from;
};
constexpr std::array<KnownVocab, 2> kKnownVocab{{
    {"bigscience_a100", 250880, "BLOOM's, which these runs prepared"},
    {"vtrain_single", 50257, "GPT-2's, Megatron's usual one"},
}};

std::int64_t vocab_of(const TrainingRow& row, std::vector<std::string>& assumed) {
  if (row.vocab) return *row.vocab;
  for (const KnownVocab& known : kKnownVocab) {
    if (row.source != known.source) continue;
    assumed.push_back(fmt::format("vocabulary {}: {}", known.vocab, known.from));
    return known.vocab;
  }
  return 0;
}

std::string missing_field(const TrainingRow& row) {
  const auto absent = [](const Count& count) { return !count || *count == 0; };
  if (absent(row.layers)) return "layers";
  if (absent(row.hidden)) return "hidden";
  if (absent(row.ffn)) return "ffn";
  if (absent(row.heads)) return "heads";
  if (absent(row.sequence)) return "seq";
  return "";
}

}  // namespace

std::variant<TransformerConfig, TrainingRefusal> training_model(const TrainingRow& row,
                                                                std::vector<std::string>& assumed) {
  TransformerConfig config;
  config.name = row.model;
  const std::string name = lower_case(row.model);
  if (!set_architecture(name, config)) return TrainingRefusal{"architecture not known by its name"};
  if (const std::string field = missing_field(row); !field.empty())
    return TrainingRefusal{field + " not published"};
  config.layers = *row.layers;
  config.hidden = *row.hidden;
  config.ffn = *row.ffn;
  config.heads = *row.heads;
  config.kv_heads = row.kv_heads.value_or(config.heads);
  config.max_positions = *row.sequence;
  config.vocab = vocab_of(row, assumed);
  if (config.vocab == 0) return TrainingRefusal{"vocab not published"};
  if (config.hidden % config.heads != 0) return TrainingRefusal{"hidden isn't a multiple of heads"};
  config.head_dim = config.hidden / config.heads;
  if (!row.kv_heads) assumed.push_back("kv_heads: as many as heads");
  if (contains(name, "bloom")) assumed.push_back("ALiBi taken as learned positions, which cost as little");
  // Megatron trained GPT with its default dropout.
  const bool old_gpt = config.positions == PositionKind::kLearned && row.framework.starts_with("Megatron");
  if (old_gpt) config.residual_dropout = config.embedding_dropout = 0.1;
  return config;
}

}  // namespace orrery

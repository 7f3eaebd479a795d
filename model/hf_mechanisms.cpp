// What a config.json can ask for that a TransformerConfig can't say. Such a file is refused, never read as
// if it were a plain dense decoder.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "model/hf_reader.hpp"

namespace orrery {
namespace {

enum class When : std::uint8_t { kPresent, kTrue, kFalse, kPositive, kNotOne };

struct Mechanism {
  const char* field;
  When when;
  const char* what;
};

constexpr const char* kExperts = "mixture of experts";
constexpr const char* kLatent = "multi-head latent attention";
constexpr const char* kHybrid = "layers that aren't attention";
constexpr const char* kScaling = "scales values that the graph leaves as they are, which 1 would switch off";
constexpr const char* kAlibi = "positions by ALiBi";
constexpr const char* kMultiToken = "multi-token prediction adds a layer and a loss";

constexpr Mechanism kMechanisms[] = {
    {"num_local_experts", When::kPositive, kExperts},
    {"num_experts", When::kPositive, kExperts},
    {"n_routed_experts", When::kPositive, kExperts},
    {"moe_num_experts", When::kPositive, kExperts},
    {"num_moe_experts", When::kPositive, kExperts},
    {"ffn_config.moe_num_experts", When::kPositive, kExperts},
    {"kv_lora_rank", When::kPresent, kLatent},
    {"q_lora_rank", When::kPresent, kLatent},
    {"hybrid_override_pattern", When::kPresent, kHybrid},
    {"attn_layer_period", When::kPresent, kHybrid},
    {"full_attention_interval", When::kPresent, kHybrid},
    {"ssm_state_size", When::kPresent, kHybrid},
    {"attention_chunk_size", When::kPresent, "attention within chunks"},
    {"num_nextn_predict_layers", When::kPositive, kMultiToken},
    {"num_mtp_modules", When::kPositive, kMultiToken},
    {"attn_logit_softcapping", When::kPresent, "attention scores capped by tanh"},
    {"final_logit_softcapping", When::kPresent, "logits capped by tanh"},
    {"embedding_multiplier", When::kNotOne, kScaling},
    {"residual_multiplier", When::kNotOne, kScaling},
    {"logits_scaling", When::kNotOne, kScaling},
    {"logit_scale", When::kNotOne, kScaling},
    {"scale_emb", When::kNotOne, kScaling},
    {"scale_depth", When::kNotOne, kScaling},
    {"alibi", When::kTrue, kAlibi},
    {"use_alibi", When::kTrue, kAlibi},
    {"attn_config.alibi", When::kTrue, kAlibi},
    {"clip_qkv", When::kPresent, "queries, keys and values are clipped"},
    {"attn_config.clip_qkv", When::kPresent, "queries, keys and values are clipped"},
    {"swiglu_limit", When::kPresent, "the gated MLP is clipped"},
    {"use_qk_norm", When::kTrue, "norms of q and k other than one RMS norm a head"},
    {"qk_layernorm", When::kTrue, "norms of q and k other than one RMS norm a head"},
    {"use_mrope", When::kTrue, "rotary positions in several axes"},
    {"is_encoder_decoder", When::kTrue, "an encoder"},
    {"add_cross_attention", When::kTrue, "an encoder"},
    {"position_encoding_2d", When::kTrue, "positions in two dimensions"},
    {"do_layer_norm_before", When::kFalse, "norms after attention and MLP"},
    {"apply_residual_connection_post_layernorm", When::kTrue, "residuals taken after the norm"},
    {"scale_attn_weights", When::kFalse, "attention scores without their 1/sqrt(head_dim)"},
    {"scale_attn_by_inverse_layer_idx", When::kTrue, "attention scores scaled by layer"},
    {"layerdrop", When::kPositive, "layers left out at random"},
    {"vision_config", When::kPresent, "an image encoder"},
    {"audio_config", When::kPresent, "an audio encoder"},
};

// Families whose mathematics no field spells out.
struct Refused {
  std::string_view model_type;
  const char* what;
};
constexpr Refused kRefused[] = {
    {"bloom", "positions by ALiBi and a norm after the embedding"},
    {"cohere", "logits scaled by logit_scale and layer norms without bias"},
    {"cohere2", "logits scaled by logit_scale and layer norms without bias"},
    {"gemma", "embeddings scaled by sqrt(hidden_size) and norms that multiply by 1 + weight"},
    {"gemma2", "norms after attention and MLP, embeddings scaled by sqrt(hidden_size)"},
    {"gemma3_text", "norms after attention and MLP, embeddings scaled by sqrt(hidden_size)"},
    {"glm4", "norms after attention and MLP"},
    {"nemotron", "norms that multiply by 1 + weight, squared ReLU"},
    {"olmo", "norms without weights"},
    {"olmo2", "norms after attention and MLP, q and k normalised across heads"},
    {"olmo3", "norms after attention and MLP, q and k normalised across heads"},
};

class Refusals {
 public:
  explicit Refusals(const HfReader& reader) : reader_(reader), fields_(reader.fields()) {}

  void check_fields(const std::string& prefix);
  void check_granite(std::string_view model_type);
  void check_layer_types();
  void check_rotation_by_layer();
  void check_window(std::string_view model_type);
  void check_family(std::string_view model_type);
  void check_nesting();
  void done() const;

 private:
  bool applies(const std::string& path, When when) const;
  double number(const std::string& path) const;
  void add(const std::string& path, std::string_view what) {
    const JsonField* field = fields_.find(path);
    list_.push_back(fmt::format("{} {} (line {}): {}", path, field->shown(), field->line, what));
  }

  const HfReader& reader_;
  const JsonFields& fields_;
  std::vector<std::string> list_;
};

double Refusals::number(const std::string& path) const {
  const JsonField* field = fields_.find(path);
  if (!field->number()) fields_.wrong(path, fmt::format("expected a number, found {}", field->shown()));
  return field->real;
}

bool Refusals::applies(const std::string& path, When when) const {
  if (!fields_.present(path)) return false;
  const JsonField& field = *fields_.find(path);
  switch (when) {
    case When::kPresent: return true;
    case When::kPositive: return !(number(path) <= 0);
    case When::kNotOne: return number(path) != 1;
    case When::kTrue:
    case When::kFalse: break;
  }
  if (field.kind != JsonField::Kind::kBool) {
    fields_.wrong(path, fmt::format("expected true or false, found {}", field.shown()));
  }
  return field.boolean == (when == When::kTrue);
}

void Refusals::check_fields(const std::string& prefix) {
  for (const Mechanism& mechanism : kMechanisms) {
    const std::string path = prefix + mechanism.field;
    if (applies(path, mechanism.when)) add(path, mechanism.what);
  }
}

// Granite's scores are multiplied by attention_multiplier, 1 if absent, where others divide by √head_dim.
void Refusals::check_granite(std::string_view model_type) {
  if (!model_type.starts_with("granite")) return;
  if (!fields_.present("attention_multiplier")) {
    list_.push_back("attention_multiplier absent: granite's default leaves scores unscaled");
    return;
  }
  const auto heads = reader_.optional_size({"num_attention_heads"});
  const auto hidden = reader_.optional_size({"hidden_size"});
  if (!heads || !hidden) return;  // Missing sizes have their own message.
  const auto head_dim = reader_.optional_size({"head_dim"});
  const double width =
      head_dim ? static_cast<double>(*head_dim) : static_cast<double>(*hidden) / static_cast<double>(*heads);
  const double usual = 1 / std::sqrt(width);
  if (std::abs(number("attention_multiplier") / usual - 1) > 1e-6) {
    add("attention_multiplier",
        fmt::format("attention scores scaled by other than 1/sqrt(head_dim) = {:.6g}", usual));
  }
}

void Refusals::check_layer_types() {
  if (!fields_.present("layer_types")) return;
  const JsonField& types = *fields_.find("layer_types");
  const auto plain = [](const JsonField& type) {
    return type.text == "full_attention" || type.text == "attention";
  };
  const auto other = std::count_if(types.items.begin(), types.items.end(),
                                   [&](const JsonField& type) { return !plain(type); });
  if (types.items.empty()) fields_.wrong("layer_types", "expected a list of words");
  if (other == 0) return;
  const auto first = std::find_if_not(types.items.begin(), types.items.end(), plain);
  add("layer_types", fmt::format("{} of {} layers aren't full attention (layer {} is {})", other,
                                 types.items.size(), first - types.items.begin(), first->shown()));
}

// A list with 0 for each layer without rotary positions (SmolLM3), or every n-th is one.
void Refusals::check_rotation_by_layer() {
  if (!fields_.present("no_rope_layers")) return;
  const JsonField& layers = *fields_.find("no_rope_layers");
  if (std::any_of(layers.items.begin(), layers.items.end(),
                  [](const JsonField& layer) { return layer.integer == 0; })) {
    add("no_rope_layers", "layers without rotary positions");
  }
}

void Refusals::check_window(std::string_view model_type) {
  const JsonField* field = fields_.find("sliding_window");
  const bool absent = field == nullptr;
  // MistralConfig's own default; a null switches the window off.
  const bool mistral_default = absent && model_type == "mistral";
  if (!mistral_default && (absent || field->null())) return;
  const std::int64_t window = mistral_default ? 4096 : reader_.size({"sliding_window"});
  const std::string shown = fmt::format("sliding_window {}", window);

  const bool switched = model_type.starts_with("qwen") || fields_.present("use_sliding_window");
  if (switched && !reader_.quiet_flag_or({"use_sliding_window"}, false)) {
    return reader_.note(shown + ": inactive, use_sliding_window isn't true");
  }
  const auto layers = reader_.optional_size({"num_hidden_layers"});
  const auto first = reader_.optional_size({"max_window_layers"});
  if (switched && layers && first && *first >= *layers) {
    return reader_.note(fmt::format("{}: inactive, it starts at layer max_window_layers {}", shown, *first));
  }
  const auto positions = reader_.optional_size({"max_position_embeddings"});
  if (positions && window >= *positions) {
    return reader_.note(fmt::format("{}: inactive, max_position_embeddings {} fit in it", shown, *positions));
  }
  if (mistral_default) {
    list_.push_back(
        "sliding_window absent: mistral's default of 4096 is a window; write null to switch it off");
  } else {
    add("sliding_window", "attention to a window of the sequence; null would switch it off");
  }
}

void Refusals::check_family(std::string_view model_type) {
  for (const Refused& refused : kRefused) {
    if (refused.model_type == model_type) {
      list_.push_back(fmt::format("model_type \"{}\": {}", model_type, refused.what));
    }
  }
  if (fields_.present("position_embedding_type")) {
    const std::string word = reader_.word_or({"position_embedding_type"}, "");
    if (word != "rope" && word != "absolute" && word != "learned_absolute") {
      add("position_embedding_type", "positions neither rotary nor learned");
    }
  }
}

// The text model of a multimodal one. Its own mechanisms are worth naming too.
void Refusals::check_nesting() {
  if (!fields_.present("text_config")) return;
  check_fields("text_config.");
  add("text_config", "one part of a multimodal model; a file with that object alone can be read");
}

void Refusals::done() const {
  if (list_.empty()) return;
  fail(ErrorKind::kInput, "{}: the graph can't express {}", fields_.place(),
       fmt::join(list_.begin(), list_.end(), "; "));
}

}  // namespace

void refuse_unsupported(const HfReader& reader, std::string_view model_type) {
  Refusals refusals(reader);
  refusals.check_family(model_type);
  refusals.check_fields("");
  refusals.check_granite(model_type);
  refusals.check_layer_types();
  refusals.check_rotation_by_layer();
  refusals.check_window(model_type);
  refusals.check_nesting();
  refusals.done();
}

}  // namespace orrery

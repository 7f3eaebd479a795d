// What a config.json can ask for that a TransformerConfig can't say. Such a file is refused, never read as
// if it were a plain dense decoder.

#include <fmt/format.h>

#include <algorithm>
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
  unsigned reads = 0;  // Of Reads: families that understand it.
};

constexpr const char* kExperts = "experts, which this model_type is read without";
constexpr const char* kLatent = "multi-head latent attention, which this model_type is read without";
constexpr const char* kHybrid = "layers that aren't attention";
constexpr const char* kScaling = "scales values that the graph leaves as they are, which 1 would switch off";
constexpr const char* kAlibi = "positions by ALiBi";
constexpr const char* kQkNorm = "norms of q and k other than one RMS norm a head";
constexpr const char* kClipped = "queries, keys and values are clipped";

constexpr Mechanism kMechanisms[] = {
    {"num_local_experts", When::kPositive, kExperts, kReadsExperts},
    {"num_experts", When::kPositive, kExperts, kReadsExperts},
    {"n_routed_experts", When::kPositive, kExperts, kReadsExperts},
    {"moe_num_experts", When::kPositive, kExperts},
    {"num_moe_experts", When::kPositive, kExperts},
    {"ffn_config.moe_num_experts", When::kPositive, kExperts},
    {"moe_layer_interval", When::kPresent, "an MLP of its own after each layer of experts"},
    {"kv_lora_rank", When::kPresent, kLatent, kReadsLatent},
    {"q_lora_rank", When::kPresent, kLatent, kReadsLatent},
    {"index_topk", When::kPresent, "attention to the keys that an indexer picks"},
    {"hybrid_override_pattern", When::kPresent, kHybrid},
    {"attn_layer_period", When::kPresent, kHybrid},
    {"full_attention_interval", When::kPresent, kHybrid},
    {"ssm_state_size", When::kPresent, kHybrid},
    {"attention_chunk_size", When::kPresent, "attention within chunks", kReadsChunks},
    {"attn_logit_softcapping", When::kPresent, "attention scores capped by tanh", kReadsSoftcaps},
    {"final_logit_softcapping", When::kPresent, "logits capped by tanh", kReadsSoftcaps},
    {"embedding_multiplier", When::kNotOne, kScaling, kReadsScales},
    {"residual_multiplier", When::kNotOne, kScaling, kReadsScales},
    {"logits_scaling", When::kNotOne, kScaling, kReadsScales},
    {"attention_multiplier", When::kPresent, kScaling, kReadsScales},
    {"logit_scale", When::kNotOne, kScaling, kReadsScales},
    {"scale_emb", When::kNotOne, kScaling, kReadsScales},
    {"scale_depth", When::kNotOne, kScaling, kReadsScales},
    {"alibi", When::kTrue, kAlibi},
    {"use_alibi", When::kTrue, kAlibi},
    {"attn_config.alibi", When::kTrue, kAlibi},
    {"clip_qkv", When::kPresent, kClipped},
    {"attn_config.clip_qkv", When::kPresent, kClipped},
    {"swiglu_limit", When::kPresent, "the gated MLP is clipped", kReadsClampedGate},
    {"use_qk_norm", When::kTrue, kQkNorm, kReadsQkNorm},
    {"qk_layernorm", When::kTrue, kQkNorm},
    {"use_mrope", When::kTrue, "rotary positions in several axes"},
    {"use_bidirectional_attention", When::kTrue, "attention to later tokens"},
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
    {"glm4", "norms after attention and MLP, of which one is before the residual's sum"},
    {"nemotron", "norms that multiply by 1 + weight, squared ReLU"},
    {"olmo", "norms without weights"},
};

class Refusals {
 public:
  explicit Refusals(const HfReader& reader) : reader_(reader), fields_(reader.fields()) {}

  void check_fields(const std::string& prefix, unsigned understood);
  void check_layer_types();
  void check_family(std::string_view model_type);
  void check_nesting();
  void done() const;

 private:
  bool applies(const std::string& path, When when) const;
  double number(const std::string& path) const;
  void add(const std::string& path, std::string_view what) {
    const JsonField* field = fields_.find(path);
    list_.push_back(
        fmt::format("{} {} (line {}): {}", fields_.shown(path), field->shown(), field->line, what));
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

void Refusals::check_fields(const std::string& prefix, unsigned understood) {
  for (const Mechanism& mechanism : kMechanisms) {
    if ((mechanism.reads & understood) != 0) continue;
    const std::string path = prefix + mechanism.field;
    if (applies(path, mechanism.when)) add(path, mechanism.what);
  }
}

void Refusals::check_layer_types() {
  if (!fields_.present("layer_types")) return;
  const JsonField& types = *fields_.find("layer_types");
  const auto plain = [](const JsonField& type) {
    return type.text == "full_attention" || type.text == "attention" || type.text == "sliding_attention" ||
           type.text == "chunked_attention";
  };
  const auto other = std::count_if(types.items.begin(), types.items.end(),
                                   [&](const JsonField& type) { return !plain(type); });
  if (types.items.empty()) fields_.wrong("layer_types", "expected a list of words");
  if (other == 0) return;
  const auto first = std::find_if_not(types.items.begin(), types.items.end(), plain);
  add("layer_types", fmt::format("{} of {} layers aren't attention (layer {} is {})", other,
                                 types.items.size(), first - types.items.begin(), first->shown()));
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
  check_fields("text_config.", 0);
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
  const HfFamily* family = find_hf_family(model_type);
  // Of an unknown family only what no other reads; that it is unknown has its own message.
  constexpr unsigned kAll = ~0u;
  refusals.check_fields("", family == nullptr ? kAll : family->reads);
  refusals.check_layer_types();
  refusals.check_nesting();
  refusals.done();
}

}  // namespace orrery

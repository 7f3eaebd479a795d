// config.json → TransformerConfig.

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "model/hf_reader.hpp"

namespace orrery {
namespace {

// Fields that change neither shape nor mathematics of training: tokenizer, library, inference, initial
// values, numerics of one implementation.
const std::set<std::string_view>& neutral_fields() {
  static const std::set<std::string_view> fields = {
      "_attn_implementation",
      "_from_model_config",
      "_name_or_path",
      "apply_query_key_layer_scaling",
      "architectures",
      "attention_softmax_in_fp32",
      "attn_implementation",
      "auto_map",
      "bias_dropout_fusion",
      "cache_implementation",
      "classifier_dropout",
      "dtype",
      "ep_size",
      "experts_per_token",
      "gradient_checkpointing",
      "id2label",
      "init_std",
      "initializer_range",
      "label2id",
      "init_method",
      "initial_context_length",
      "max_window_layers",
      "model_max_length",
      "mtp_transformer_layers",
      "n_ctx",
      "n_group",
      "normalization_function",
      "original_max_position_embeddings",
      "original_rope",
      "output_router_logits",
      "output_past",
      "prefix",
      "pretraining_tp",
      "reorder_and_upcast_attn",
      "rope_parameters",
      "rope_ratio",
      "rope_scaling",
      "rotary",
      "router_aux_loss_coef",
      "seq_aux",
      "sliding_window",
      "task_specific_params",
      "tokenizer_class",
      "topk_group",
      "torch_dtype",
      "transformers_version",
      "use_cache",
      "use_mtp",
      "use_sliding_window",
      "z_loss_weight",
  };
  return fields;
}

bool neutral(std::string_view field) {
  return neutral_fields().contains(field) || field.ends_with("_token_id") || field.starts_with("summary_") ||
         field.starts_with("mamba_");  // Of layers that are refused where there are any.
}

std::string model_type_of(const JsonFields& fields, std::vector<std::string>& notes) {
  if (fields.present("model_type")) {
    const JsonField& type = *fields.find("model_type");
    if (type.kind != JsonField::Kind::kString) {
      fields.wrong("model_type", fmt::format("expected a word, found {}", type.shown()));
    }
    if (!type.text.empty()) return type.text;
  }
  const JsonField* architectures = fields.find("architectures");
  if (architectures == nullptr) return "";
  for (const JsonField& architecture : architectures->items) {
    for (const HfFamily& family : hf_families()) {
      if (architecture.text != family.architecture) continue;
      notes.push_back(
          fmt::format("model_type absent: taken as {} after {}", family.model_type, architecture.text));
      return std::string(family.model_type);
    }
  }
  return "";
}

const HfFamily& family_of(const JsonFields& fields, const std::string& model_type) {
  if (const HfFamily* family = find_hf_family(model_type)) return *family;
  std::vector<std::string> supported;
  for (const HfFamily& family : hf_families()) supported.emplace_back(family.model_type);
  const std::string list = fmt::format("{}", fmt::join(supported, ", "));
  if (model_type.empty()) {
    fail(ErrorKind::kInput, "{}: {} is missing; expected one of {}", fields.place(),
         fields.shown("model_type"), list);
  }
  fields.wrong("model_type",
               fmt::format("{} isn't supported; expected one of {}{}", fields.find("model_type")->shown(),
                           list, did_you_mean(model_type, supported)));
}

// "models/llama-3-8b.json" → "llama-3-8b"; "llama-3-8b/config.json" too.
std::string name_of(std::string_view place) {
  const std::filesystem::path path(place);
  const std::string stem = path.stem().string();
  if (stem != "config") return stem;
  const std::string folder = path.parent_path().filename().string();
  return folder.empty() ? stem : folder;
}

void note_dropouts(const HfReader& reader) {
  // Dropout within attention or the MLP doesn't exist in the graph.
  for (const char* field : {"attention_dropout", "attn_pdrop", "activation_dropout", "attn_dropout_prob"}) {
    const double rate = reader.quiet_number_or({field}, 0);
    if (rate != 0) reader.note(fmt::format("{} {}: dropout there isn't in the graph", field, rate));
  }
}

void note_quantization(const HfReader& reader) {
  if (!reader.fields().present("quantization_config")) return;
  const JsonField* method = reader.fields().find("quantization_config.quant_method");
  reader.note(
      fmt::format("quantization_config{}: the published weights are quantised; training has the "
                  "plan's precision",
                  method == nullptr ? "" : " " + method->shown()));
}

// A field that switches nothing on.
bool off(const JsonField& field) {
  return field.null() || (field.kind == JsonField::Kind::kBool && !field.boolean) ||
         (field.number() && field.real == 0);
}

void note_unread(const HfReader& reader) {
  std::vector<std::string> unread;
  for (const auto& [path, field] : reader.fields().all()) {
    const bool root = path.find('.') == std::string::npos;
    if (root && !reader.fields().was_read(path) && !neutral(path) && !off(field)) unread.push_back(path);
  }
  if (!unread.empty()) reader.note(fmt::format("not understood and left out: {}", fmt::join(unread, ", ")));
}

// The language model of one that reads images or sound too, if the file leaves those out.
JsonFields language_model(JsonFields fields, std::vector<std::string>& notes) {
  if (!fields.present("text_config") || fields.present("vision_config") || fields.present("audio_config")) {
    return fields;
  }
  notes.push_back("text_config: the language model alone; what reads other inputs isn't in the graph");
  return fields.within("text_config");
}

}  // namespace

TransformerConfig parse_hf_config(std::string_view json, std::string_view place) {
  TransformerConfig config;
  const JsonFields fields = language_model(JsonFields(json, place), config.notes);
  const HfReader reader(fields, config);
  config.name = name_of(place);
  const std::string model_type = model_type_of(fields, config.notes);
  refuse_unsupported(reader, model_type);
  const HfFamily& family = family_of(fields, model_type);

  config.hidden = reader.agreed_size({"hidden_size", "n_embd", "d_model"});
  config.layers = reader.agreed_size({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
  if (config.layers > kMostLayers) {  // Before anything makes lists by layer.
    fail(ErrorKind::kInput, "{}: layers is {}; expected 1 to {}", place, config.layers, kMostLayers);
  }
  config.heads = reader.agreed_size({"num_attention_heads", "n_head", "n_heads"});
  config.vocab = reader.size({"vocab_size", "padded_vocab_size"});
  config.tied_head = reader.flag_or({"tie_word_embeddings"}, family.tied_by_default);
  family.read(reader, config);
  read_layer_kinds(reader, family, config);
  note_dropouts(reader);
  note_quantization(reader);
  note_unread(reader);

  const std::vector<std::string> faults = check(config);
  if (!faults.empty()) fail(ErrorKind::kInput, "{}: {}", place, fmt::join(faults, "; "));
  return config;
}

TransformerConfig read_hf_config(const std::filesystem::path& file) {
  if (std::filesystem::is_directory(file)) {
    fail(ErrorKind::kInput, "{}: is a folder; expected a config.json such as {}", file.string(),
         (file / "config.json").string());
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail(ErrorKind::kInput, "{}: can't be opened; expected a config.json", file.string());
  const std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  return parse_hf_config(text, file.string());
}

}  // namespace orrery

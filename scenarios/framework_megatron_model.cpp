// Megatron-LM's arguments as a model. Defaults are those of megatron/training/arguments.py and
// megatron/core/transformer/transformer_config.py.

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMost = 10'000'000;

// Mechanisms that the model section can't say. A model isn't written as if they weren't there.
constexpr auto kRefused = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"hybrid-*", "layers that aren't attention or MLP"},
    {"is-hybrid-model", "layers that aren't attention or MLP"},
    {"mamba-*", "state-space layers"},
    {"linear-attention*", "linear attention"},
    {"experimental-attention-variant", "another attention"},
    {"window-size", "a sliding window"},
    {"window-attn-skip-freq", "a sliding window"},
    {"heterogeneous-layers-config*", "layers of different shape"},
    {"encoder-num-layers", "an encoder"},
    {"squared-relu", "squared ReLU"},
    {"moe-latent-size", "experts on a latent"},
    {"spec", "a layer specification in code"},
});

// "([0]*3+[1]*58)" written out: Python's lists of whole numbers with + and *.
class ListExpression {
 public:
  explicit ListExpression(std::string_view text) : rest_(text) {}
  std::optional<std::vector<std::int64_t>> value() {
    auto result = sum(0);
    skip_blanks();
    return rest_.empty() ? result : std::nullopt;
  }

 private:
  using List = std::optional<std::vector<std::int64_t>>;
  static constexpr std::size_t kLongest = 10'000;

  void skip_blanks() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<std::int64_t> number() {
    skip_blanks();
    const std::size_t end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto value = parse_integer(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return value;
  }

  List sum(int depth) {
    List left = product(depth);
    while (left && take('+')) {
      const List right = product(depth);
      if (!right || left->size() + right->size() > kLongest) return std::nullopt;
      left->insert(left->end(), right->begin(), right->end());
    }
    return left;
  }
  List product(int depth) {
    List left = factor(depth);
    while (left && take('*')) {
      const auto times = number();
      if (!times || static_cast<std::size_t>(*times) * left->size() > kLongest) return std::nullopt;
      std::vector<std::int64_t> repeated;
      for (std::int64_t i = 0; i < *times; ++i) repeated.insert(repeated.end(), left->begin(), left->end());
      left = std::move(repeated);
    }
    return left;
  }
  List factor(int depth) {
    if (depth > 16) return std::nullopt;
    if (take('(')) {
      List inner = sum(depth + 1);
      return take(')') ? inner : std::nullopt;
    }
    if (!take('[')) return std::nullopt;
    std::vector<std::int64_t> items;
    while (!take(']')) {
      const auto item = number();
      if (!item || items.size() == kLongest) return std::nullopt;
      items.push_back(*item);
      take(',');
    }
    return items;
  }

  std::string_view rest_;
};

// The vocabularies of tokenizers that are known by name; the first that the name contains counts.
struct KnownTokenizer {
  std::string_view part;
  std::int64_t vocab;
};
constexpr auto kTokenizers = std::to_array<KnownTokenizer>({
    {"GPT2BPETokenizer", 50257},
    {"Llama2Tokenizer", 32000},
    {"DeepSeek-V3", 129280},
    {"DeepSeek-V2", 102400},
    {"Llama-2", 32000},
    {"Llama2", 32000},
    {"Llama-3", 128256},
    {"Llama3", 128256},
    {"Mixtral-8x7B", 32000},
    {"Mixtral-8x22B", 32000},
    {"Qwen3", 151936},
});

class MegatronModel {
 public:
  MegatronModel(FrameworkSettings& settings, const MegatronDialect& dialect, ImportedPlan& plan)
      : s_(settings), dialect_(dialect), plan_(plan) {}

  void map() {
    // Everything is asked for, so that nothing of a model that can't be written counts as unknown.
    ImportedPlan model;
    std::swap(model.keys, plan_.keys);
    const std::string refusal = refused();
    sizes();
    mechanisms();
    experts();
    latent();
    std::swap(model.keys, plan_.keys);
    if (!refusal.empty()) {
      plan_.missing.push_back("model: " + refusal + ", which the model section doesn't have");
    } else if (!complete_) {
      plan_.missing.push_back(dialect_.recipe ? "model: its sizes come from the framework's recipe"
                                              : "model: the file doesn't say all of its sizes");
    } else {
      plan_.keys.insert(plan_.keys.begin(), model.keys.begin(), model.keys.end());
      if (!vocab_) plan_.missing.push_back("model.vocab: the tokenizer's size");
    }
  }

 private:
  void put(std::string_view key, std::string value, std::string_view flag) {
    plan_.put("model." + std::string(key), std::move(value),
              s_.has(flag) ? s_.written(flag) : fmt::format("no {}", flag));
  }
  void put_default(std::string_view key, std::string value, std::string source) {
    plan_.put("model." + std::string(key), std::move(value), std::move(source));
  }
  std::optional<std::int64_t> put_size(std::string_view key, std::string_view flag) {
    const auto value = s_.integer(flag, 1, kMost);
    if (value) put(key, std::to_string(*value), flag);
    return value;
  }

  std::string refused() {
    std::string found;
    for (const auto& [pattern, what] : kRefused) {
      for (const FrameworkSetting& setting : s_.all()) {
        if (!name_matches(pattern, setting.name) || setting.value == "false" || setting.value == "False")
          continue;
        if (found.empty()) found = fmt::format("{} ({})", what, setting.written);
      }
      s_.use(pattern);
    }
    if (const auto positions = s_.word("position-embedding-type"); positions && *positions != "rope" &&
                                                                   *positions != "learned_absolute" &&
                                                                   *positions != "yarn" && found.empty()) {
      found = fmt::format("{} positions ({})", *positions, s_.written("position-embedding-type"));
    }
    return found;
  }

  void sizes() {
    const auto hidden = put_size("hidden", "hidden-size");
    const auto layers = put_size("layers", "num-layers");
    const auto heads = put_size("heads", "num-attention-heads");
    complete_ = hidden && layers && heads;
    const bool grouped = s_.on("group-query-attention");
    const auto groups = s_.integer("num-query-groups", 1, kMost);
    latent_ = s_.on("multi-latent-attention");
    if (grouped && groups && !latent_) put("kv_heads", std::to_string(*groups), "num-query-groups");
    const auto channels = s_.integer("kv-channels", 1, kMost);
    if (channels && !latent_) put("head_dim", std::to_string(*channels), "kv-channels");
    gated_ = s_.on("swiglu");
    ffn_ = s_.integer("ffn-hidden-size", 1, kMost);
    if (ffn_) {
      put("ffn", std::to_string(*ffn_), "ffn-hidden-size");
    } else if (gated_ && hidden) {
      // arguments.py: int((4 * hidden_size * 2 / 3) / 64) * 64.
      ffn_ = *hidden * 8 / 3 / 64 * 64;
      put_default("ffn", std::to_string(*ffn_),
                  "hidden · 8/3, a multiple of 64, as without --ffn-hidden-size");
    } else if (hidden) {
      ffn_ = 4 * *hidden;
    }
    vocabulary();
    const auto positions = s_.integer("max-position-embeddings", 1, kMost);
    if (positions) put("max_positions", std::to_string(*positions), "max-position-embeddings");
  }

  void vocabulary() {
    const auto type = s_.word("tokenizer-type");
    const FrameworkSetting* model = s_.find("tokenizer-model");
    s_.use("tokenizer-model");
    for (const char* flag : {"vocab-size", "padded-vocab-size", "pad-vocab-size-to"}) {
      const auto size = s_.integer(flag, 1, kMost);
      if (!size || vocab_) continue;
      vocab_ = true;
      put("vocab", std::to_string(*size), flag);
    }
    if (vocab_) return;
    // A vocabulary file without --tokenizer-type is GPT-2's: that was Megatron-LM's only tokenizer.
    const bool bpe = !type && s_.has("vocab-file") && s_.has("merge-file");
    const std::string names =
        (bpe ? "GPT2BPETokenizer" : type.value_or("")) + " " + (model != nullptr ? model->value : "");
    for (const KnownTokenizer& tokenizer : kTokenizers) {
      if (names.find(tokenizer.part) == std::string::npos) continue;
      vocab_ = true;
      put_default("vocab", std::to_string(tokenizer.vocab), fmt::format("that of {}", tokenizer.part));
      plan_.assumed.push_back(
          fmt::format("model.vocab: {}, the size of {}, by its name", tokenizer.vocab, tokenizer.part));
      return;
    }
  }

  void mechanisms() {
    const auto norm = s_.word("normalization");
    const bool rms = norm && (*norm == "RMSNorm" || *norm == "rmsnorm");
    put("norm", rms ? "rms" : "layer", "normalization");
    const auto type = s_.word("position-embedding-type");
    const bool rotary = s_.on("use-rotary-position-embeddings") || type.value_or("") == "rope" || latent_;
    put_default("positions", rotary ? "rope" : "learned",
                type      ? s_.written("position-embedding-type")
                : latent_ ? "latent attention"
                          : s_.written("use-rotary-position-embeddings"));
    if (const auto percent = s_.number("rotary-percent"); percent && rotary && *percent < 1) {
      put("rotary_fraction", fmt::format("{}", *percent), "rotary-percent");
    }
    put("gated_mlp", gated_ ? "true" : "false", "swiglu");
    put_default("activation", gated_ ? "silu" : "gelu",
                gated_ ? s_.written("swiglu") : "GELU where there is no swiglu");
    put("tied_head", s_.on("untie-embeddings-and-output-weights") ? "false" : "true",
        "untie-embeddings-and-output-weights");
    const bool bias = !s_.on("disable-bias-linear");
    for (const char* key : {"qkv_bias", "attention_out_bias", "mlp_bias"}) {
      if (bias) put_default(key, "true", "no disable-bias-linear");
    }
    if (!bias && s_.on("add-qkv-bias")) put("qkv_bias", "true", "add-qkv-bias");
    s_.use("add-qkv-bias");
    const bool norms = s_.on("qk-layernorm");
    if (norms && !latent_) put("qk_norm", "true", "qk-layernorm");
    const auto dropout = s_.number("hidden-dropout");
    if (dropout.value_or(0.1) > 0) {
      const std::string text = fmt::format("{}", dropout.value_or(0.1));
      const std::string source = dropout ? s_.written("hidden-dropout") : "hidden-dropout's default";
      put_default("residual_dropout", text, source);
      put_default("embedding_dropout", text, source);
    }
    if (s_.on("parallel-residual")) put("parallel_residual", "true", "parallel-residual");
  }

  // Which layers have experts: every n-th, or a list of zeros and ones.
  void expert_layers() {
    const auto text = s_.word("moe-layer-freq");
    if (!text) return;
    if (const auto every = parse_integer(*text)) {
      if (*every > 1) put("experts.every", std::to_string(*every), "moe-layer-freq");
      return;
    }
    const auto list = ListExpression(*text).value();
    if (!list || list->empty()) {
      s_.fault("moe-layer-freq",
               fmt::format("is {}; expected a number or a list such as ([0]*3+[1]*58)", quote(*text)));
      return;
    }
    const auto first = std::find(list->begin(), list->end(), 1);
    const bool then_all = std::all_of(first, list->end(), [](std::int64_t value) { return value == 1; });
    if (then_all && first != list->end()) {
      const auto dense = first - list->begin();
      if (dense > 0) put("experts.dense_layers", std::to_string(dense), "moe-layer-freq");
      return;
    }
    plan_.left_out.push_back(
        fmt::format("{} {}: every layer has experts", s_.written("moe-layer-freq"), *text));
  }

  void experts() {
    const auto count = s_.integer("num-experts", 1, kMost);
    const auto picks = s_.integer("moe-router-topk", 1, kMost);
    const auto width = s_.integer("moe-ffn-hidden-size", 1, kMost);
    const auto shared = s_.integer("moe-shared-expert-intermediate-size", 1, kMost);
    const auto score = s_.word("moe-router-score-function");
    const bool before = s_.on("moe-router-pre-softmax");
    const auto groups = s_.integer("moe-router-num-groups", 1, kMost);
    const auto top_groups = s_.integer("moe-router-group-topk", 1, kMost);
    const auto scale = s_.number("moe-router-topk-scaling-factor");
    const bool balancing = s_.on("moe-router-enable-expert-bias");
    const auto type = s_.word("moe-router-dtype");
    const bool gate = s_.on("moe-shared-expert-gate");
    if (!count || *count < 2) {
      s_.use("moe-*");
      return;
    }
    put("experts.count", std::to_string(*count), "num-experts");
    put_default("experts.per_token", std::to_string(picks.value_or(2)),
                picks ? s_.written("moe-router-topk") : "moe-router-topk's default");
    put_default("experts.ffn", std::to_string(width.value_or(ffn_.value_or(0))),
                width ? s_.written("moe-ffn-hidden-size") : "the width of the MLP");
    if (shared) put("experts.shared_ffn", std::to_string(*shared), "moe-shared-expert-intermediate-size");
    if (gate) put("experts.shared_gate", "true", "moe-shared-expert-gate");
    expert_layers();
    if (score && *score != "softmax" && *score != "sigmoid") {
      plan_.left_out.push_back(fmt::format("{} {}: the router's scores are a softmax",
                                           s_.written("moe-router-score-function"), *score));
    } else if (score) {
      put("experts.score", *score, "moe-router-score-function");
    }
    if (before && score.value_or("softmax") == "softmax")
      put("experts.normalized", "false", "moe-router-pre-softmax");
    if (scale) put("experts.scale", fmt::format("{}", *scale), "moe-router-topk-scaling-factor");
    if (groups && top_groups) {
      put("experts.groups", std::to_string(*groups), "moe-router-num-groups");
      put("experts.top_groups", std::to_string(*top_groups), "moe-router-group-topk");
    }
    if (balancing) put("experts.balancing_bias", "true", "moe-router-enable-expert-bias");
    if (type && type->starts_with("fp")) put("experts.router_fp32", "true", "moe-router-dtype");
  }

  void latent() {
    constexpr auto kSizes =
        std::to_array<std::array<std::string_view, 2>>({{"kv_dim", "kv-lora-rank"},
                                                        {"q_dim", "q-lora-rank"},
                                                        {"plain_dim", "qk-head-dim"},
                                                        {"rope_dim", "qk-pos-emb-head-dim"},
                                                        {"value_dim", "v-head-dim"}});
    // MLATransformerConfig's own values.
    constexpr std::array<std::int64_t, 5> kDefaults = {512, 0, 128, 64, 128};
    for (std::size_t i = 0; i < kSizes.size(); ++i) {
      const auto& [key, flag] = kSizes[i];
      const auto value = s_.integer(flag, 1, kMost);
      if (!latent_ || (!value && kDefaults[i] == 0)) continue;
      put_default("latent." + std::string(key), std::to_string(value.value_or(kDefaults[i])),
                  value ? s_.written(flag) : fmt::format("{}'s default", flag));
    }
  }

  FrameworkSettings& s_;
  const MegatronDialect& dialect_;
  ImportedPlan& plan_;
  bool complete_ = false, vocab_ = false, gated_ = false, latent_ = false;
  std::optional<std::int64_t> ffn_;
};

}  // namespace

void map_megatron_model(FrameworkSettings& settings, const MegatronDialect& dialect, ImportedPlan& plan) {
  MegatronModel(settings, dialect, plan).map();
}

}  // namespace orrery

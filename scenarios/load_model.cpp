#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

// Largest model dimension: a thousand times today's, and element counts still fit 64 bits.
constexpr std::int64_t kMaxDimension = 10'000'000;
constexpr std::int64_t kMaxLayers = 10'000;

// Every n-th layer: `of_them` there, the contrary elsewhere. Empty without layers, whose absence is its own
// fault.
std::vector<bool> every_nth(const TransformerConfig& config, std::int64_t n, bool of_them) {
  std::vector<bool> list;
  for (std::int64_t i = 1; i <= config.layers; ++i) list.push_back((i % n == 0) == of_them);
  return list;
}

void read_experts(const Section& model, TransformerConfig& config) {
  if (!model.has("experts")) return;
  const Section section(*model.node("experts"), model.path("experts"), "experts", model.faults());
  ExpertsConfig& experts = config.experts;
  for (const auto& [key, target] :
       {std::pair("count", &experts.count), std::pair("per_token", &experts.per_token),
        std::pair("ffn", &experts.ffn)}) {
    if (section.require(key, "a size of the experts")) section.integer(key, *target, 1, kMaxDimension);
  }
  section.integer("shared_ffn", experts.shared_ffn, 1, kMaxDimension);
  section.boolean("shared_gate", experts.shared_gate);
  std::int64_t dense = 0, every = 1;
  section.integer("dense_layers", dense, 0, kMaxLayers);
  section.integer("every", every, 1, kMaxLayers);
  if (dense > 0 || every > 1) experts.layers = every_nth(config, every, true);
  for (std::size_t i = 0; i < experts.layers.size() && std::cmp_less(i, dense); ++i)
    experts.layers[i] = false;
  section.choice<RouterScore>("score", experts.score,
                              {{"softmax", RouterScore::kSoftmax}, {"sigmoid", RouterScore::kSigmoid}});
  section.boolean("normalized", experts.normalized);
  section.number("scale", experts.scale, 0, 1000);
  section.integer("groups", experts.groups, 1, kMaxDimension);
  section.integer("top_groups", experts.top_groups, 1, kMaxDimension);
  section.boolean("balancing_bias", experts.balancing_bias);
  section.boolean("router_bias", experts.router_bias);
  section.boolean("router_fp32", experts.router_fp32);
  section.boolean("bias", experts.expert_bias);
  section.boolean("scale_inputs", experts.scale_inputs);
}

void read_latent(const Section& model, TransformerConfig& config) {
  if (!model.has("latent")) return;
  const Section section(*model.node("latent"), model.path("latent"), "latent", model.faults());
  LatentConfig& latent = config.latent;
  for (const auto& [key, target] :
       {std::pair("kv_dim", &latent.kv_dim), std::pair("plain_dim", &latent.plain_dim),
        std::pair("rope_dim", &latent.rope_dim), std::pair("value_dim", &latent.value_dim)}) {
    if (section.require(key, "a size of latent attention")) section.integer(key, *target, 1, kMaxDimension);
  }
  section.integer("q_dim", latent.q_dim, 1, kMaxDimension);
  config.head_dim = latent.plain_dim + latent.rope_dim;
}

void read_local(const Section& section, TransformerConfig& config) {
  section.integer("window", config.local.window, 1, kMaxDimension);
  section.integer("chunk", config.local.chunk, 1, kMaxDimension);
  if (!section.has("global_every")) return;
  if (config.local.window == 0 && config.local.chunk == 0) {
    section.fault("global_every", "needs a window or a chunk, which every n-th layer is without");
  }
  std::int64_t every = 1;
  bool rotates = true;
  section.integer("global_every", every, 1, kMaxLayers);
  section.boolean("global_rope", rotates);
  config.local.layers = every_nth(config, every, false);
  if (!rotates) config.unrotated_layers = every_nth(config, every, true);
}

void read_sizes(const Section& section, std::int64_t sequence, TransformerConfig& config) {
  for (const auto& [key, target] : {std::pair("hidden", &config.hidden), std::pair("heads", &config.heads),
                                    std::pair("vocab", &config.vocab)}) {
    if (section.require(key, "a size of the model")) section.integer(key, *target, 1, kMaxDimension);
  }
  if (section.require("layers", "the number of decoder layers")) {
    section.integer("layers", config.layers, 1, kMaxLayers);
  }
  section.boolean("gated_mlp", config.gated_mlp);
  config.kv_heads = config.heads;
  section.integer("kv_heads", config.kv_heads, 1, kMaxDimension);
  if (config.heads > 0) config.head_dim = config.hidden / config.heads;
  section.integer("head_dim", config.head_dim, 1, kMaxDimension);
  // Four times the width is the rule of plain MLPs (Vaswani et al. 2017); gated ones have no such rule.
  config.ffn = config.gated_mlp ? 0 : 4 * config.hidden;
  section.integer("ffn", config.ffn, 1, kMaxDimension);
  read_experts(section, config);
  if (config.all_layers_have_experts()) {
    if (!section.has("ffn")) config.ffn = 0;
  } else if (config.gated_mlp) {
    section.require("ffn", "the width of the gated MLP (or gated_mlp: false)");
  }
  read_latent(section, config);
  config.max_positions = std::max<std::int64_t>(sequence, 1);
  section.integer("max_positions", config.max_positions, 1, kMaxDimension);
  section.integer("embedding_dim", config.embedding_dim, 1, kMaxDimension);
}

void read_mechanisms(const Section& section, TransformerConfig& config) {
  section.choice<NormKind>("norm", config.norm, {{"rms", NormKind::kRms}, {"layer", NormKind::kLayer}});
  section.number("norm_epsilon", config.norm_epsilon, 0, 1);
  section.boolean("norm_bias", config.norm_bias);
  section.boolean("pre_norm", config.pre_norm);
  section.boolean("post_norm", config.post_norm);
  section.choice<PositionKind>("positions", config.positions,
                               {{"rope", PositionKind::kRope}, {"learned", PositionKind::kLearned}});
  section.number("rotary_fraction", config.rotary_fraction, 0, 1);
  section.choice<Activation>(
      "activation", config.activation,
      {{"silu", Activation::kSilu}, {"gelu", Activation::kGelu}, {"relu", Activation::kRelu}});
  section.boolean("tied_head", config.tied_head);
  section.boolean("qkv_bias", config.qkv_bias);
  section.boolean("attention_out_bias", config.attention_out_bias);
  section.boolean("mlp_bias", config.mlp_bias);
  section.boolean("head_bias", config.head_bias);
  section.boolean("qk_norm", config.qk_norm);
  section.boolean("qk_norm_across_heads", config.qk_norm_across_heads);
  section.boolean("attention_sinks", config.attention_sinks);
  section.number("attention_softcap", config.attention_softcap, 0, 1e6);
  section.number("logit_softcap", config.logit_softcap, 0, 1e6);
  section.number("embedding_scale", config.embedding_scale, 0, 1e6);
  section.number("residual_scale", config.residual_scale, 0, 1e6);
  section.number("logit_scale", config.logit_scale, 0, 1e6);
  read_local(section, config);
  section.boolean("parallel_residual", config.parallel_residual);
  section.boolean("shared_input_norm", config.shared_input_norm);
  section.number("residual_dropout", config.residual_dropout, 0, 0.99);
  section.number("embedding_dropout", config.embedding_dropout, 0, 0.99);
  if (config.positions == PositionKind::kLearned) {
    section.require("max_positions", "the length of the table of learned positions");
  }
}

void read_inline(const YamlNode& node, Scenario& scenario, Faults& faults) {
  const std::size_t before = faults.count();
  const Section section(node, "model", "model", faults);
  TransformerConfig& config = scenario.model;
  config.name = scenario.name;
  section.text("name", config.name);
  read_sizes(section, scenario.plan.settings.sequence, config);
  read_mechanisms(section, config);
  if (faults.count() > before) return;
  for (const std::string& fault : check(config)) faults.add(node, "model", fault);
}

void read_from_config(const Section& file, Scenario& scenario) {
  std::filesystem::path path;
  file.file("model", path);
  if (path.empty()) return;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";  // A downloaded model's folder.
  if (!std::filesystem::is_regular_file(path, ignored)) {
    file.fault("model",
               fmt::format("there is no file {}; expected a Hugging Face config.json, or the model's "
                           "sizes written inline: {{hidden: …, layers: …, …}}",
                           quote(path.string())));
    return;
  }
  try {
    scenario.model = read_hf_config(path);
    scenario.notes.insert(scenario.notes.end(), scenario.model.notes.begin(), scenario.model.notes.end());
  } catch (const Error& error) {
    file.fault("model", error.what());
  }
}

}  // namespace

void read_model(const Section& file, Scenario& scenario) {
  if (!file.require("model", "a config.json, or the model's sizes: {hidden: …, layers: …, …}")) return;
  const YamlNode& node = *file.node("model");
  if (node.kind == YamlNode::Kind::kMap) {
    read_inline(node, scenario, file.faults());
  } else {
    read_from_config(file, scenario);
  }
}

}  // namespace orrery

// Whether the sizes of a transformer fit together.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/transformer.hpp"

namespace orrery {
namespace {

// Far above any model (a vocabulary of 2³⁰); below, products of three sizes and a layer count stay in 64
// bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;
// Parameters are counted in int64 and their bytes (16 a parameter with Adam) too.
constexpr double kMostParameters = 1e17;

class Faults {
 public:
  void size(std::string_view field, std::int64_t value, std::int64_t least, std::int64_t most) {
    if (value < least || value > most) {
      add("{} is {}; expected {} to {}", field, value, least, most);
    }
  }
  void fraction(std::string_view field, double value, bool in_range, std::string_view range) {
    if (!in_range) add("{} is {}; expected {}", field, value, range);
  }
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    list.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::string> list;
};

void check_sizes(const TransformerConfig& c, Faults& faults) {
  faults.size("hidden", c.hidden, 1, kLargestSize);
  faults.size("layers", c.layers, 1, kMostLayers);
  faults.size("heads", c.heads, 1, kLargestSize);
  faults.size("kv_heads", c.kv_heads, 1, kLargestSize);
  faults.size("head_dim", c.head_dim, 1, kLargestSize);
  faults.size("ffn", c.ffn, c.all_layers_have_experts() ? 0 : 1, kLargestSize);
  faults.size("vocab", c.vocab, 1, kLargestSize);
  faults.size("max_positions", c.max_positions, 1, kLargestSize);
  faults.size("position_offset", c.position_offset, 0, kLargestSize);
  faults.size("embedding_dim", c.embedding_dim, 0, kLargestSize);
  faults.size("local.window", c.local.window, 0, kLargestSize);
  faults.size("local.chunk", c.local.chunk, 0, kLargestSize);
}

void check_layer_list(std::string_view field, const std::vector<bool>& list, const TransformerConfig& c,
                      Faults& faults) {
  if (list.empty() || static_cast<std::int64_t>(list.size()) == c.layers) return;
  faults.add("{} names {} layers; expected {}, or none", field, list.size(), c.layers);
}

void check_expert_sizes(const TransformerConfig& c, Faults& faults) {
  const ExpertsConfig& e = c.experts;
  faults.size("experts.count", e.count, 0, kLargestSize);
  if (e.count == 0) return;
  faults.size("experts.per_token", e.per_token, 1, std::max<std::int64_t>(1, e.count));
  faults.size("experts.ffn", e.ffn, 1, kLargestSize);
  faults.size("experts.shared_ffn", e.shared_ffn, 0, kLargestSize);
  faults.size("experts.groups", e.groups, 1, std::max<std::int64_t>(1, e.count));
  faults.size("experts.top_groups", e.top_groups, 1, std::max(1, e.groups));
}

void check_latent_sizes(const TransformerConfig& c, Faults& faults) {
  const LatentConfig& l = c.latent;
  faults.size("latent.kv_dim", l.kv_dim, 0, kLargestSize);
  if (l.kv_dim == 0) return;
  faults.size("latent.q_dim", l.q_dim, 0, kLargestSize);
  faults.size("latent.plain_dim", l.plain_dim, 1, kLargestSize);
  faults.size("latent.rope_dim", l.rope_dim, 2, kLargestSize);
  faults.size("latent.value_dim", l.value_dim, 1, kLargestSize);
}

// Upper bounds: latent attention has fewer, and layers without experts too.
double rough_parameters(const TransformerConfig& c) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  const LatentConfig& l = c.latent;
  const double latent = d(l.kv_dim + l.q_dim) * (d(c.hidden) + d(c.heads) * d(c.head_dim + l.value_dim)) +
                        d(c.hidden) * d(c.heads) * d(l.value_dim);
  const double attention = 2 * d(c.hidden) * d(c.head_dim) * (d(c.heads) + d(c.kv_heads)) + latent;
  const double widths = d(c.ffn) + d(c.experts.count) * d(c.experts.ffn) + d(c.experts.shared_ffn);
  const double mlp = 3 * d(c.hidden) * widths + d(c.hidden) * d(c.experts.count);
  const double tables = 2 * d(c.vocab) * d(std::max(c.hidden, c.embedding_dim)) +
                        d(c.max_positions + c.position_offset) * d(c.hidden);
  return d(c.layers) * (attention + mlp) + tables;
}

void check_rotation(const TransformerConfig& c, Faults& faults) {
  if (!(c.rotary_fraction > 0 && c.rotary_fraction <= 1)) {
    faults.add("rotary_fraction is {}; expected above 0 and at most 1", c.rotary_fraction);
    return;
  }
  // Dimensions rotate in pairs.
  const bool latent = c.latent.kv_dim != 0;
  const double rotated =
      latent ? static_cast<double>(c.latent.rope_dim) : c.rotary_fraction * static_cast<double>(c.head_dim);
  if (std::abs(rotated - 2 * std::round(rotated / 2)) > 1e-6) {
    faults.add("rotary_fraction {} of head_dim {} is {} dimensions; expected an even number",
               c.rotary_fraction, c.head_dim, rotated);
  }
  if (!(c.rope_theta > 0 && std::isfinite(c.rope_theta))) {
    faults.add("rope_theta is {}; expected above 0", c.rope_theta);
  }
  if (!(c.local.rope_theta >= 0 && std::isfinite(c.local.rope_theta))) {
    faults.add("local.rope_theta is {}; expected above 0, or 0 for that of the other layers",
               c.local.rope_theta);
  }
}

void check_experts(const TransformerConfig& c, Faults& faults) {
  const ExpertsConfig& e = c.experts;
  if (e.count == 0) return;
  check_layer_list("experts.layers", e.layers, c, faults);
  if (e.count % e.groups != 0) {
    faults.add("experts.count {} doesn't divide by experts.groups {}", e.count, e.groups);
  } else if (e.per_token > e.top_groups * (e.count / e.groups)) {
    faults.add("experts.per_token {} is more than {} groups of {} experts have", e.per_token, e.top_groups,
               e.count / e.groups);
  }
  faults.fraction("experts.scale", e.scale, e.scale > 0 && std::isfinite(e.scale), "above 0");
  if (e.shared_gate && e.shared_ffn == 0) faults.add("experts.shared_gate without experts.shared_ffn");
}

void check_attention(const TransformerConfig& c, Faults& faults) {
  const LatentConfig& l = c.latent;
  if (l.kv_dim != 0 && c.head_dim != l.plain_dim + l.rope_dim) {
    faults.add("head_dim is {}; expected latent.plain_dim + latent.rope_dim, {}", c.head_dim,
               l.plain_dim + l.rope_dim);
  }
  if (l.kv_dim != 0 && c.kv_heads != c.heads) {
    faults.add("kv_heads is {}; expected {}, latent attention makes keys for every head", c.kv_heads,
               c.heads);
  }
  const bool qk_norm = c.qk_norm || c.qk_norm_across_heads;
  if (l.kv_dim != 0 && (qk_norm || c.qk_norm_unweighted)) {
    faults.add("qk_norm with latent attention, whose norms are those of its latents");
  }
  if (qk_norm && c.qk_norm_unweighted) faults.add("qk_norm_unweighted together with another norm of q and k");
  if (c.local.window != 0 && c.local.chunk != 0) faults.add("local.window together with local.chunk");
  check_layer_list("local.layers", c.local.layers, c, faults);
  check_layer_list("unrotated_layers", c.unrotated_layers, c, faults);
  faults.fraction("attention_softcap", c.attention_softcap,
                  c.attention_softcap >= 0 && std::isfinite(c.attention_softcap), "0 or above");
  faults.fraction("score_scale", c.score_scale, c.score_scale >= 0 && std::isfinite(c.score_scale),
                  "above 0, or 0 for 1/sqrt(head_dim)");
}

void check_scales(const TransformerConfig& c, Faults& faults) {
  for (const auto& [field, value] :
       {std::pair("embedding_scale", c.embedding_scale), std::pair("residual_scale", c.residual_scale),
        std::pair("logit_scale", c.logit_scale)}) {
    faults.fraction(field, value, value > 0 && std::isfinite(value), "above 0");
  }
  faults.fraction("logit_softcap", c.logit_softcap, c.logit_softcap >= 0 && std::isfinite(c.logit_softcap),
                  "0 or above");
  // One of them works on a single operand, the other on two.
  const bool clamped = c.activation == Activation::kClampedSilu;
  if (c.activation == Activation::kTanhCap || (clamped && !c.gated_mlp)) {
    faults.add("activation isn't one of an MLP{}", clamped ? " without gate" : "");
  }
  if (clamped && !(c.activation_limit > 0 && std::isfinite(c.activation_limit))) {
    faults.add("activation_limit is {}; expected above 0", c.activation_limit);
  }
  if (!c.pre_norm && !c.post_norm) faults.add("pre_norm and post_norm are both off; expected one of them");
  if (!c.pre_norm && c.shared_input_norm) faults.add("shared_input_norm without pre_norm");
}

}  // namespace

bool TransformerConfig::all_layers_have_experts() const {
  return experts.count != 0 &&
         std::find(experts.layers.begin(), experts.layers.end(), false) == experts.layers.end();
}

std::vector<std::string> check(const TransformerConfig& c) {
  Faults faults;
  check_sizes(c, faults);
  check_expert_sizes(c, faults);
  check_latent_sizes(c, faults);
  if (!faults.list.empty()) return faults.list;
  if (c.heads % c.kv_heads != 0) {
    faults.add("heads {} don't divide by kv_heads {}; expected a whole number of query heads per kv head",
               c.heads, c.kv_heads);
  }
  if (rough_parameters(c) > kMostParameters) {
    faults.add("about {:.1e} parameters; expected at most {:.0e}", rough_parameters(c), kMostParameters);
  }
  if (c.positions == PositionKind::kRope) check_rotation(c, faults);
  faults.fraction("norm_epsilon", c.norm_epsilon, c.norm_epsilon > 0 && c.norm_epsilon < 1,
                  "above 0 and below 1");
  faults.fraction("residual_dropout", c.residual_dropout, c.residual_dropout >= 0 && c.residual_dropout < 1,
                  "0 up to, but not, 1");
  faults.fraction("embedding_dropout", c.embedding_dropout,
                  c.embedding_dropout >= 0 && c.embedding_dropout < 1, "0 up to, but not, 1");
  check_experts(c, faults);
  check_attention(c, faults);
  check_scales(c, faults);
  if (c.shared_input_norm && !c.parallel_residual) {
    faults.add("shared_input_norm without parallel_residual; one norm can feed both only side by side");
  }
  return faults.list;
}

}  // namespace orrery

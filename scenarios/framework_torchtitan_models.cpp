// torchtitan names a model and its flavour; the sizes stand in its Python. These are those of
// torchtitan/models/*/__init__.py, the widths of Llama's MLPs worked out from dim, multiple_of and
// ffn_dim_multiplier as its FeedForward does.

#include <array>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"

namespace orrery {
namespace {

struct Llama {
  std::string_view name, flavor;
  std::int64_t hidden, layers, heads, kv_heads, ffn, vocab;
};
constexpr auto kLlamas = std::to_array<Llama>({
    {"llama2", "7B", 4096, 32, 32, 32, 11008, 32000},
    {"llama2", "13B", 5120, 40, 40, 40, 13824, 32000},
    {"llama2", "70B", 8192, 80, 64, 8, 28672, 32000},
    {"llama3", "8B", 4096, 32, 32, 8, 14336, 128256},
    {"llama3", "70B", 8192, 80, 64, 8, 28672, 128256},
    {"llama3", "405B", 16384, 126, 128, 8, 53248, 128256},
});

// Latent attention and experts, as DeepSeek published them.
struct DeepSeek {
  std::string_view flavor;
  std::int64_t hidden, layers, heads, ffn, vocab, experts, per_token, expert_ffn, shared_ffn, dense, groups,
      top_groups, q_dim;
  std::string_view score, scale;
};
constexpr auto kDeepSeeks = std::to_array<DeepSeek>({
    {"16B", 2048, 27, 16, 10944, 102400, 64, 6, 1408, 2816, 1, 1, 1, 0, "softmax", "1"},
    {"236B", 5120, 60, 128, 12288, 102400, 160, 6, 1536, 3072, 1, 8, 3, 1536, "softmax", "16"},
    {"671B", 7168, 61, 128, 18432, 129280, 256, 8, 2048, 2048, 3, 8, 4, 1536, "sigmoid", "2.5"},
});

}  // namespace

void map_torchtitan_model(FrameworkSettings& settings, ImportedPlan& plan) {
  const std::string name = settings.word("model.name").value_or("");
  const std::string flavor = settings.word("model.flavor").value_or("");
  const std::string source = fmt::format("model.name {}, model.flavor {}", name, flavor);
  const auto put = [&](std::string_view key, const auto& value) {
    plan.put("model." + std::string(key), fmt::format("{}", value), source);
  };
  for (const Llama& model : kLlamas) {
    if (model.name != name || model.flavor != flavor) continue;
    put("hidden", model.hidden);
    put("layers", model.layers);
    put("heads", model.heads);
    put("kv_heads", model.kv_heads);
    put("ffn", model.ffn);
    put("vocab", model.vocab);
    return;
  }
  for (const DeepSeek& model : kDeepSeeks) {
    if (name != "deepseek_v3" || model.flavor != flavor) continue;
    put("hidden", model.hidden);
    put("layers", model.layers);
    put("heads", model.heads);
    put("ffn", model.ffn);
    put("vocab", model.vocab);
    put("experts.count", model.experts);
    put("experts.per_token", model.per_token);
    put("experts.ffn", model.expert_ffn);
    put("experts.shared_ffn", model.shared_ffn);
    put("experts.dense_layers", model.dense);
    put("experts.score", model.score);
    put("experts.scale", model.scale);
    if (model.groups > 1) put("experts.groups", model.groups);
    if (model.groups > 1) put("experts.top_groups", model.top_groups);
    put("latent.kv_dim", 512);
    if (model.q_dim > 0) put("latent.q_dim", model.q_dim);
    put("latent.plain_dim", 128);
    put("latent.rope_dim", 64);
    put("latent.value_dim", 128);
    return;
  }
  plan.missing.push_back(name.empty() ? "model: the file doesn't say which"
                                      : fmt::format("model: the sizes of {} {} (--model)", name, flavor));
}

}  // namespace orrery

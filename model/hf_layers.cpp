// What a config.json says layer by layer: windows and rotation.

#include <fmt/format.h>

#include <algorithm>

#include "model/hf_reader.hpp"

namespace orrery {
namespace {

bool is_local(const JsonField& type) {
  return type.text == "sliding_attention" || type.text == "chunked_attention";
}

// 0: there is none, with a note where one is given but has no effect.
std::int64_t active_window(const HfReader& r, const HfFamily& family, const TransformerConfig& c) {
  const bool null = r.fields().all().contains("sliding_window") && !r.fields().present("sliding_window");
  if (null) return 0;
  const auto given = r.optional_size({"sliding_window"});
  if (!given && family.window == 0) return 0;
  const std::int64_t window = given.value_or(family.window);
  const std::string shown = fmt::format("sliding_window {}", window);
  const bool switched = family.model_type.starts_with("qwen") || r.fields().present("use_sliding_window");
  if (switched && !r.quiet_flag_or({"use_sliding_window"}, false)) {
    r.note(shown + ": inactive, use_sliding_window isn't true");
    return 0;
  }
  if (window >= c.max_positions) {
    r.note(fmt::format("{}: inactive, max_position_embeddings {} fit in it", shown, c.max_positions));
    return 0;
  }
  if (!given) r.note(fmt::format("sliding_window absent: taken as {}", window));
  return window;
}

// Qwen's windows begin at a layer; others leave out every n-th.
std::vector<bool> local_layers(const HfReader& r, const HfFamily& family, const TransformerConfig& c) {
  std::vector<bool> local;
  if (r.fields().present("layer_types")) {
    for (const JsonField& type : r.fields().find("layer_types")->items) local.push_back(is_local(type));
    if (std::ssize(local) != c.layers) {
      r.fields().wrong("layer_types",
                       fmt::format("expected a list with an entry for each of {} layers, found {}", c.layers,
                                   local.size()));
    }
    return local;
  }
  const bool begins = family.model_type.starts_with("qwen") || r.fields().present("max_window_layers");
  const std::int64_t first = begins ? r.optional_size({"max_window_layers"}).value_or(0) : 0;
  const std::int64_t global_every = r.optional_size({"sliding_window_pattern"}).value_or(family.global_every);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    local.push_back(i >= first && (global_every == 0 || (i + 1) % global_every != 0));
  }
  return local;
}

void read_window(const HfReader& r, const HfFamily& family, TransformerConfig& c) {
  const std::int64_t window = active_window(r, family, c);
  if (window == 0) return;
  std::vector<bool> local = local_layers(r, family, c);
  if (std::find(local.begin(), local.end(), true) == local.end()) {
    return r.note(fmt::format("sliding_window {}: inactive, no layer has it", window));
  }
  c.local.window = window;
  if (std::find(local.begin(), local.end(), false) != local.end()) c.local.layers = std::move(local);
}

}  // namespace

void read_layer_kinds(const HfReader& r, const HfFamily& family, TransformerConfig& c) {
  if (c.local.chunk == 0) read_window(r, family, c);
  const std::vector<bool> rotated = r.layer_flags("no_rope_layers");  // 0: the layer doesn't rotate.
  if (rotated.empty()) return;
  c.unrotated_layers = rotated;
  c.unrotated_layers.flip();
}

}  // namespace orrery

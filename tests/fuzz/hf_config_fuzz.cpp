// Whatever bytes a config.json holds, reading it either gives a shape that fits together and builds a
// sound graph, or throws Error(kInput).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "model/transformer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Building thousands of layers would only slow the search down.
  constexpr std::int64_t kLayers = 3;
  try {
    orrery::TransformerConfig config =
        orrery::parse_hf_config({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    if (!orrery::check(config).empty()) std::abort();
    if (config.layers > kLayers) {
      config.layers = kLayers;
      for (auto* list : {&config.experts.layers, &config.local.layers, &config.unrotated_layers}) {
        if (!list->empty()) list->resize(kLayers);
      }
      // Those with a plain MLP may be gone now.
      if (!orrery::check(config).empty()) return 0;
    }
    const orrery::Graph graph = orrery::build_training_graph(config, orrery::DType::kBf16);
    if (!orrery::verify(graph).empty() || orrery::parameter_count(graph) <= 0) std::abort();
  } catch (const orrery::Error& error) {
    if (error.kind() != orrery::ErrorKind::kInput) std::abort();
  }
  return 0;
}

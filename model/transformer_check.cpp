// Whether the sizes of a transformer fit together.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/transformer.hpp"

namespace orrery {
namespace {

// Far above any model (a vocabulary of 2³⁰, 10,000 layers); below, products of three sizes and a
// layer count stay in 64 bits and the graph in memory.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;
constexpr std::int64_t kMostLayers = 10'000;
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
  faults.size("ffn", c.ffn, 1, kLargestSize);
  faults.size("vocab", c.vocab, 1, kLargestSize);
  faults.size("max_positions", c.max_positions, 1, kLargestSize);
  faults.size("position_offset", c.position_offset, 0, kLargestSize);
  faults.size("embedding_dim", c.embedding_dim, 0, kLargestSize);
}

double rough_parameters(const TransformerConfig& c) {
  const auto d = [](std::int64_t value) { return static_cast<double>(value); };
  const double attention = 2 * d(c.hidden) * d(c.head_dim) * (d(c.heads) + d(c.kv_heads));
  const double mlp = 3 * d(c.hidden) * d(c.ffn);
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
  const double rotated = c.rotary_fraction * static_cast<double>(c.head_dim);
  if (std::abs(rotated - 2 * std::round(rotated / 2)) > 1e-6) {
    faults.add("rotary_fraction {} of head_dim {} is {} dimensions; expected an even number",
               c.rotary_fraction, c.head_dim, rotated);
  }
  if (!(c.rope_theta > 0 && std::isfinite(c.rope_theta))) {
    faults.add("rope_theta is {}; expected above 0", c.rope_theta);
  }
}

}  // namespace

std::vector<std::string> check(const TransformerConfig& c) {
  Faults faults;
  check_sizes(c, faults);
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
  if (c.shared_input_norm && !c.parallel_residual) {
    faults.add("shared_input_norm without parallel_residual; one norm can feed both only side by side");
  }
  return faults.list;
}

}  // namespace orrery

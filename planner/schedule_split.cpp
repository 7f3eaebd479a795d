#include "planner/schedule_split.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "base/error.hpp"

namespace orrery {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Sums of layers before each index, so that a stage's cost is two subtractions.
class Costs {
 public:
  Costs(std::span<const LayerCost> layers, std::span<const StageLimit> limits) : limits_(limits) {
    sums_.resize(layers.size() + 1);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      sums_[i + 1].time = sums_[i].time + layers[i].time;
      sums_[i + 1].static_bytes = sums_[i].static_bytes + layers[i].static_bytes;
      sums_[i + 1].activation_bytes = sums_[i].activation_bytes + layers[i].activation_bytes;
    }
  }
  double time(std::size_t first, std::size_t last) const { return sums_[last].time - sums_[first].time; }
  double bytes(std::size_t stage, std::size_t first, std::size_t last) const {
    const double in_flight = limits_.empty() ? 1 : limits_[stage].in_flight;
    return sums_[last].static_bytes - sums_[first].static_bytes +
           in_flight * (sums_[last].activation_bytes - sums_[first].activation_bytes);
  }
  double limit(std::size_t stage) const { return limits_.empty() ? kNever : limits_[stage].memory_bytes; }
  bool fits(std::size_t stage, std::size_t first, std::size_t last) const {
    // Sums that differ from the layers' own in the last bits must not decide.
    return bytes(stage, first, last) <= limit(stage) * (1 + 1e-12);
  }
  std::size_t layers() const { return sums_.size() - 1; }

 private:
  std::vector<LayerCost> sums_;
  std::span<const StageLimit> limits_;
};

// Cost of giving layers [first, last) to a stage; grows as the interval does. kNever: impossible.
using StageCost = std::function<double(std::size_t stage, std::size_t first, std::size_t last)>;

struct Best {
  double value = kNever;
  std::vector<std::int32_t> first_layer;
};

// Least total over all splits, totals by `join` (maximum or sum): best[s][j] over the first s stages and j
// layers.
template <class Join>
Best best_split(std::size_t layers, std::size_t stages, bool allow_empty, const StageCost& cost, Join join) {
  const std::size_t columns = layers + 1, least = allow_empty ? 0 : 1;
  std::vector<double> best((stages + 1) * columns, kNever);
  std::vector<std::int32_t> from((stages + 1) * columns, -1);
  best[0] = 0;
  for (std::size_t s = 1; s <= stages; ++s) {
    for (std::size_t j = least * s; j < columns; ++j) {
      double& value = best[s * columns + j];
      for (std::size_t i = j + 1 - least; i-- > 0;) {
        const double own = cost(s - 1, i, j);
        if (own > value || own == kNever) break;  // Longer intervals cost more.
        const double total = join(best[(s - 1) * columns + i], own);
        if (total >= value) continue;
        value = total;
        from[s * columns + j] = static_cast<std::int32_t>(i);
      }
    }
  }
  Best result;
  result.value = best[stages * columns + layers];
  if (result.value == kNever) return result;
  result.first_layer.resize(stages + 1);
  result.first_layer[stages] = static_cast<std::int32_t>(layers);
  for (std::size_t s = stages; s > 0; --s) {
    const auto j = static_cast<std::size_t>(result.first_layer[s]);
    result.first_layer[s - 1] = from[s * columns + j];
  }
  return result;
}

void check(std::span<const LayerCost> layers, std::int32_t stages, std::span<const StageLimit> limits,
           bool allow_empty) {
  if (stages < 1) fail(ErrorKind::kInput, "layer split: {} stages, expected at least 1", stages);
  if (!allow_empty && layers.size() < static_cast<std::size_t>(stages)) {
    fail(ErrorKind::kInput,
         "layer split: {} layers on {} stages, expected at least one each; use at most {} stages",
         layers.size(), stages, layers.size());
  }
  if (!limits.empty() && limits.size() != static_cast<std::size_t>(stages)) {
    fail(ErrorKind::kInput, "layer split: limits of {} stages, expected {} or none", limits.size(), stages);
  }
  const auto expect = [](std::string_view place, std::size_t index, double value, bool may_be_infinite) {
    if (value >= 0 && (may_be_infinite || std::isfinite(value))) return;
    fail(ErrorKind::kInput, "layer split: {} {} has {}, expected a number from 0 on", place, index, value);
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const double value : {layers[i].time, layers[i].static_bytes, layers[i].activation_bytes}) {
      expect("layer", i, value, false);
    }
  }
  for (std::size_t s = 0; s < limits.size(); ++s) {
    expect("stage", s, limits[s].memory_bytes, true);
    expect("stage", s, limits[s].in_flight, false);
  }
}

constexpr auto kLarger = [](double a, double b) { return std::max(a, b); };

// Tells the split whose fullest stage is least overfull.
[[noreturn]] void fail_memory(const Costs& costs, std::size_t stages, bool allow_empty) {
  const auto fullness = [&](std::size_t stage, std::size_t first, std::size_t last) {
    const double bytes = costs.bytes(stage, first, last);
    if (bytes <= 0 || costs.limit(stage) == kNever) return 0.0;
    return costs.limit(stage) > 0 ? bytes / costs.limit(stage) : std::numeric_limits<double>::max();
  };
  const Best best = best_split(costs.layers(), stages, allow_empty, fullness, kLarger);
  for (std::size_t s = 0; s < stages; ++s) {
    const auto first = static_cast<std::size_t>(best.first_layer[s]);
    const auto last = static_cast<std::size_t>(best.first_layer[s + 1]);
    if (fullness(s, first, last) < best.value) continue;
    fail(ErrorKind::kInfeasible,
         "layer split: {} layers don't fit on {} stages; in the least tight split stage {} (layers {} to {}) "
         "needs {:.4g} "
         "of {:.4g} bytes: use more stages, fewer micro-batches in flight, or recompute",
         costs.layers(), stages, s, first, last - 1, costs.bytes(s, first, last), costs.limit(s));
  }
  fail(ErrorKind::kInfeasible, "layer split: {} layers don't fit on {} stages", costs.layers(), stages);
}

}  // namespace

LayerSplit split_layers(std::span<const LayerCost> layers, std::int32_t stages,
                        std::span<const StageLimit> limits, bool allow_empty) {
  check(layers, stages, limits, allow_empty);
  const Costs costs(layers, limits);
  const auto count = static_cast<std::size_t>(stages);
  const auto time = [&](std::size_t stage, std::size_t first, std::size_t last) {
    return costs.fits(stage, first, last) ? costs.time(first, last) : kNever;
  };
  const Best fastest = best_split(layers.size(), count, allow_empty, time, kLarger);
  if (fastest.value == kNever) fail_memory(costs, count, allow_empty);
  const auto squared = [&](std::size_t stage, std::size_t first, std::size_t last) {
    const double alone = time(stage, first, last);
    return alone <= fastest.value ? alone * alone : kNever;
  };
  const Best even =
      best_split(layers.size(), count, allow_empty, squared, [](double a, double b) { return a + b; });
  return {even.first_layer, fastest.value};
}

}  // namespace orrery

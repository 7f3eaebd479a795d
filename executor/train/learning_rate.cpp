#include "executor/train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace orrery {

std::string_view to_string(Decay decay) {
  switch (decay) {
    case Decay::kConstant: return "constant";
    case Decay::kLinear: return "linear";
    case Decay::kCosine: return "cosine";
  }
  return "";
}

double LearningRate::at(std::int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (decay == Decay::kConstant) return peak;
  const std::int64_t length = std::max<std::int64_t>(1, decay_steps - warmup_steps);
  const double x = std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(length));
  const double share = decay == Decay::kLinear ? 1 - x : 0.5 * (1 + std::cos(std::numbers::pi * x));
  return floor + (peak - floor) * share;
}

}  // namespace orrery

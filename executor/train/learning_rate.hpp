#pragma once
// The learning rate of each step: linear warm-up, then decay to a floor.

#include <cstdint>
#include <string_view>

namespace orrery {

enum class Decay : std::uint8_t { kConstant, kLinear, kCosine };
std::string_view to_string(Decay decay);

struct LearningRate {
  double peak = 3e-4;
  double floor = 3e-5;            // Reached after `decay_steps` and kept.
  std::int64_t warmup_steps = 0;  // Step s < warmup_steps has peak · (s + 1) / warmup_steps.
  std::int64_t decay_steps = 0;   // Of the run, warm-up included.
  Decay decay = Decay::kCosine;

  // cosine: floor + (peak − floor) · (1 + cos πx) / 2 (SGDR, Loshchilov & Hutter 2017), x from 0 at the end
  // of the warm-up to 1 at decay_steps.
  double at(std::int64_t step) const;
};

}  // namespace orrery

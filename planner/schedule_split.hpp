#pragma once
// Which layers go to which stage when layers or stages differ: the slowest stage as fast as memory lets it
// be.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace orrery {

// Embedding and head are layers of their own, the first and the last, with their own cost.
struct LayerCost {
  double time = 0;              // Forward and backward of one micro-batch, in any one unit.
  double static_bytes = 0;      // Parameters, gradients, optimiser state.
  double activation_bytes = 0;  // Of one micro-batch.
};

struct StageLimit {
  double memory_bytes = std::numeric_limits<double>::infinity();
  double in_flight = 1;  // Micro-batches whose activations the stage holds: peak_activations of the schedule.
};

struct LayerSplit {
  std::vector<std::int32_t>
      first_layer;  // stages + 1 entries: stage s does [first_layer[s], first_layer[s + 1]).
  double slowest_time = 0;
};

// Of all splits into consecutive, non-empty stages (or empty ones, where allowed) that fit, one with the
// least time on the slowest stage, and of those the one with the smallest sum of squared stage times. One
// virtual stage per rank: with several, a rank's memory is shared by stages that this treats alone. Needs
// about (layers · stages · layers per stage) steps. `limits` is empty or has one per stage. THROWS
// Error(kInfeasible) with how much more memory the least tight split needs, and on which stage; Error(kInput)
// for numbers that are negative or not finite and fewer layers than stages.
LayerSplit split_layers(std::span<const LayerCost> layers, std::int32_t stages,
                        std::span<const StageLimit> limits = {}, bool allow_empty = false);

}  // namespace orrery

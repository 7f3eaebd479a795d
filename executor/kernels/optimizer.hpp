#pragma once
// AdamW (Loshchilov & Hutter 2019) element by element, so that the bits don't depend on how a flat array of
// parameters is cut into shards.

#include <cstddef>
#include <cstdint>

#include "executor/kernels/kernels.hpp"

namespace orrery::host {

struct AdamWSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // 0 for what isn't decayed.
  std::int64_t step = 1;       // t: 1 in the first step.
  double gradient_scale = 1;   // Of every gradient, before anything else: clipping, means over micro-batches.
};

// A stretch of the flat array. All have as many elements.
struct AdamWArrays {
  TensorView gradient;      // Any floating-point type, which is read as `convert` does.
  float* master = nullptr;  // Updated.
  float* first = nullptr;   // m, updated.
  float* second = nullptr;  // v, updated.
  TensorView weights;  // The new master, rounded; no data where the master is what the model computes with.
};

//   g = scale · gradient,  m = β1 m + (1 − β1) g,  v = β2 v + (1 − β2) g²
//   w = w (1 − lr · decay) − lr / (1 − β1^t) · m / (√v / √(1 − β2^t) + ε)
void adamw(const AdamWSettings& settings, const AdamWArrays& arrays, Workspace& workspace);

}  // namespace orrery::host

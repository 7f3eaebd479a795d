#include "planner/memory_formula.hpp"

#include <cassert>

namespace orrery {

double state_bytes_per_parameter(int zero_stage, double ranks, double gradient_bytes) {
  constexpr double kWeights = 2, kOptimizer = 12;
  assert(zero_stage >= 0 && zero_stage <= 3 && ranks >= 1);
  const double weights = zero_stage >= 3 ? kWeights / ranks : kWeights;
  const double gradients = zero_stage >= 2 ? gradient_bytes / ranks : gradient_bytes;
  return weights + gradients + (zero_stage >= 1 ? kOptimizer / ranks : kOptimizer);
}

double deepspeed_zero2_bytes(double parameters, double gpus) {
  return 4 * parameters + 16 * parameters / gpus;
}

double deepspeed_zero3_bytes(double parameters, double largest_layer, double gpus, Zero3Offload offload) {
  double state = 0;
  switch (offload) {
    case Zero3Offload::kNothing: state = 18 * parameters / gpus; break;
    case Zero3Offload::kOptimizer: state = 2 * parameters / gpus; break;
    case Zero3Offload::kEverything: break;
  }
  return 4 * largest_layer + state;
}

double layer_activation_bytes(const ActivationCase& one) {
  const LayerShape& layer = one.layer;
  const auto hidden = static_cast<double>(layer.hidden), ffn = static_cast<double>(layer.ffn);
  const auto heads = static_cast<double>(layer.heads), kv_heads = static_cast<double>(layer.kv_heads);
  const auto head_dim = static_cast<double>(layer.head_dim);
  const auto degree = static_cast<double>(one.tp);
  const double tokens = static_cast<double>(one.sequence) * static_cast<double>(one.microbatch);
  const double outer_degree = one.sequence_parallel ? degree : 1;
  if (one.recompute == FormulaRecompute::kFull) return tokens * 2 * hidden / outer_degree;

  const double outer = 8 * hidden + (layer.dropout ? 2 * hidden : 0);
  const double qkv = 2 * (heads + 2 * kv_heads) * head_dim;
  const double context = 2 * heads * head_dim;
  const double mlp = (layer.gated ? 6 : 4) * ffn;
  const double sequence = static_cast<double>(one.sequence);
  const bool keeps = one.recompute == FormulaRecompute::kNone;
  double attention = 0;  // What it makes.
  if (layer.stores_scores) {
    attention = context + (keeps ? (layer.dropout ? 5 : 2) * heads * sequence : 0);
  } else if (keeps) {
    attention = context + 4 * heads;
  }
  return tokens * (outer / outer_degree + (qkv + attention + mlp) / degree);
}

double layers_in_flight(double layers, double pp, double virtual_stages) {
  return virtual_stages > 1 ? layers * (1 + (pp - 1) / (pp * virtual_stages)) : layers;
}

double layer_parameters(const LayerShape& layer) {
  const auto hidden = static_cast<double>(layer.hidden);
  const auto heads = static_cast<double>(layer.heads), kv_heads = static_cast<double>(layer.kv_heads);
  return hidden * (2 * (heads + kv_heads) * static_cast<double>(layer.head_dim) +
                   (layer.gated ? 3 : 2) * static_cast<double>(layer.ffn));
}

}  // namespace orrery

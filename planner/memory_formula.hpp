#pragma once
// The memory of a training step in closed form, as papers and frameworks give it: for a first answer without
// a Program, and to hold Programs against. What is peculiar to a plan (buckets, messages, workspaces, uneven
// stages) is the Program's business (planner/memory.hpp).
//
// Sources: Korthikanti et al. 2022 (activations; tables 1 and 2, equations 1 to 6), Rajbhandari et al. 2020
// (ZeRO), DeepSpeed's documentation (docs/code-docs/source/memory.rst), Megatron-LM's distributed optimiser
// (docs/user-guide/features/dist_optimizer.md).

#include <cstdint>

namespace orrery {

// ---- State.

// Bytes a parameter takes of every rank: weights in 2 bytes, gradients, and 12 for fp32 master weights and
// both Adam moments. ZeRO-1 divides the last over `ranks`, ZeRO-2 the gradients too, ZeRO-3 everything.
double state_bytes_per_parameter(int zero_stage, double ranks, double gradient_bytes);

// DeepSpeed's estimates per GPU. ZeRO-2: fp16 weights and gradients whole, 16 bytes a parameter divided.
// ZeRO-3: 4 bytes for each parameter of the largest layer, which is gathered, and what of the state isn't
// offloaded to the host: all 18 bytes, the weights' 2, or nothing.
enum class Zero3Offload : std::uint8_t { kNothing, kOptimizer, kEverything };
double deepspeed_zero2_bytes(double parameters, double gpus);
double deepspeed_zero3_bytes(double parameters, double largest_layer, double gpus, Zero3Offload offload);

// ---- Activations.

struct LayerShape {
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
  bool gated = false;    // Three matrices of the MLP instead of two.
  bool dropout = false;  // Of the residual parts and, where scores are stored, of them too: 1-byte masks.
  bool stores_scores = false;  // No flash attention: scores of all pairs are kept, 2 bytes before and after
                               // dropout and its mask; else one fp32 a head and token.
};

// kSelective drops what attention makes of q, k and v: its scores where they are stored, else its output and
// statistics. kFull keeps a layer's input.
enum class FormulaRecompute : std::uint8_t { kNone, kSelective, kFull };

struct ActivationCase {
  LayerShape layer;
  std::int64_t sequence = 0, microbatch = 1;
  std::int64_t tp = 1;
  bool sequence_parallel = false;
  FormulaRecompute recompute = FormulaRecompute::kNone;
};

// What one layer keeps for one micro-batch in 16-bit types. Outside of attention and MLP 8h a token (the
// inputs of both norms and both products) and 2h of masks, divided by tp with sequence parallelism alone;
// inside 2 (heads + kv heads) head_dim · 2 and 4f (6f gated), always divided. Multi-head with f = 4h and
// dropout: sbh (10 + 24/t + 5as/ht).
double layer_activation_bytes(const ActivationCase& one);

// Layers' worth of activations on the first of `pp` stages: as many micro-batches of its share as are in
// flight there, L (1 + (p − 1) / (p v)) with v virtual stages each. REQUIRES: at least that many
// micro-batches.
double layers_in_flight(double layers, double pp, double virtual_stages);

// Weights of the matrices of a layer; norms and biases are left out.
double layer_parameters(const LayerShape& layer);

}  // namespace orrery

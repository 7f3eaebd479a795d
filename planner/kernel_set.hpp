#pragma once
// Which ops become one launch. A kernel set is data, so that the same Plan can be lowered for different
// implementations: time and memory follow from the launches.

#include <string>
#include <string_view>
#include <vector>

#include "model/graph.hpp"

namespace orrery {

// `second` joins the launch of `first` when it reads one of its outputs.
struct Fusion {
  OpKind first;
  OpKind second;
};

struct KernelSet {
  std::string name;
  std::vector<Fusion> fusions;
  // The loss and its gradient work on fp32 logits, which a launch of their own makes; the 16-bit ones are
  // then free.
  bool fp32_loss = false;
  // What one projection makes, and the gradients that its input's gradient reads, lie side by side (see
  // Buffer::behind), as do its weights and their gradients.
  bool packed = false;

  bool fuses(OpKind first, OpKind second) const;
};

// "reference": one launch per op. "orrery-cuda": residual additions join the norm that reads them, dropout
// joins the addition, and the backward of a norm adds the residual's gradient itself. "orrery-cuda-packed":
// besides, a projection's parts are one product over operands that lie side by side, rotary positions join
// the projection that they turn and their gradient attention's. "orrery-host": as reference. "megatron":
// dropout joins the residual addition (Megatron-LM's bias_dropout_add_fused; its fused bias and GELU is what
// every set does, as a bias belongs to its matmul), and logits become fp32 for the loss (its unfused
// vocab_parallel_cross_entropy, the default): 6 bytes a logit while both are there. Returns nullptr for other
// names.
const KernelSet* find_kernel_set(std::string_view name);
std::vector<std::string> kernel_set_names();

}  // namespace orrery

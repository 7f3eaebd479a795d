#pragma once
// Every op of a transformer graph on one rank's part of its tensors, in single precision. What each op means
// is said by run_op (executor/host/reference_op.hpp); these are its fast counterparts for training runs.
//
// Results don't depend on how rows (batch, sequence, heads, slots, columns of a weight) are divided over
// calls, nor on the vector instructions of the machine; sums over a dimension that ranks divide (a contracted
// one, the tokens of a weight's gradient) do depend on that.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.hpp"
#include "executor/host/reference_op.hpp"
#include "executor/kernels/workspace.hpp"
#include "model/graph.hpp"

namespace orrery::host {

// A tensor, or a rank's part of one: dense, row-major, aligned as its elements are. Arithmetic is fp32
// whatever the type; narrower ones are converted on the way in and rounded to nearest even on the way out.
// kFp8 is E4M3, and E5M2 in tensors of the kinds kGradient and kParameterGradient.
struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;
  std::int64_t elements = 0;
};

// Writes the outputs from the inputs (both in the op's order); adds into gradients of parameters. Ids,
// labels, picks and places may be of any whole-number type. Outputs must not overlap inputs, except those of
// element-wise ops (unary, gated, scale, add, dropout and their gradients) which may be one of them exactly.
// A bias whose view has no data is left out (where a contracted dimension is divided, one rank brings the
// bias); so is a sink's gradient where view.first_keys is false. REQUIRES: a forward or backward op of a
// transformer, not of imported graphs; views as large as view.sizes says (attention: keys as many as
// view.key_positions, where those are given).
void run_kernel(const Graph& graph, const Op& op, const OpView& view, std::span<const TensorView> inputs,
                std::span<const TensorView> outputs, Workspace& workspace);

// One part of the loss over a divided vocabulary, of this op. Operands in the order of the instruction:
//   part 0: logits → maximum
//   part 1: logits, labels, maximum → sum of exponentials, label's logit (0 where another rank has the label)
//   part 2: maximum, sum, label's logit → loss, log-sum-exp
// REQUIRES: view.vocab and view.loss_tokens are set.
void run_loss_part(const OpView& view, int part, std::span<const TensorView> operands, Workspace& workspace);

// Adds what attention made of one block of keys to what it made of those before. Operands in the order of the
// instruction, the written ones last:
//   kAttention: context, log-sum-exp, the block's context, the block's log-sum-exp (→ context, log-sum-exp)
//   kAttentionGrad: dq, the block's dq, the block's dk, the block's dv, dk, dv that came in with it (→ dq)
// dk and dv that came in are written; so are the first ones where none stand at the end (`in_place`).
void add_ring_step(OpKind kind, bool in_place, std::span<const TensorView> operands, Workspace& workspace);

// Rounds one view's elements to another's type. REQUIRES: as many elements; both floating-point.
void convert(const TensorView& from, const TensorView& to, Workspace& workspace);

// to += from, as accumulating instructions do. Types may differ.
void accumulate(const TensorView& from, const TensorView& to, Workspace& workspace);

}  // namespace orrery::host

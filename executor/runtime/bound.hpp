#pragma once
// A Program bound to one rank: every instruction as the actions it comes to, with the addresses they work on.
// Made once; a step then looks nothing up.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "executor/kernels/kernels.hpp"
#include "executor/runtime/owned.hpp"
#include "executor/runtime/runs.hpp"
#include "executor/runtime/world.hpp"

namespace orrery::host {

// ---- What a rank does by itself.

struct Zero {
  TensorView to;
};
struct CopyBytes {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
};
// Token ids or labels of a micro-batch, by its global index: those of the rank's tokens.
struct FillInput {
  TensorView to;
  TensorId tensor;
  std::int32_t microbatch = 0;
  std::vector<Run> runs;  // From the whole [batch, sequence].
};
struct RunOp {
  OpId op;
  OpView view;
  std::vector<TensorView> inputs, outputs;
};
// One of the three parts of the loss over a divided vocabulary.
struct RunLossPart {
  std::int32_t part = 0;
  OpView view;
  std::vector<TensorView> operands;
};
// Ring attention: adds a block's result to those before.
struct RunRingStep {
  OpKind kind = OpKind::kAttention;
  bool in_place = false;  // The first operand is the one that the sum replaces.
  OpView view;
  std::vector<TensorView> operands;
};
struct Add {
  TensorView to, from;
};
struct Convert {
  TensorView to, from;
};
// Of the gradients that this rank counts; `alone`: there is nobody to add it up with.
struct SumSquares {
  std::vector<TensorView> parts;
  bool alone = true;
};
struct UpdateSlice {
  TensorView gradient, weights;
  float* master = nullptr;  // The weights themselves where they are fp32.
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  bool decays = true;  // Matrices do; biases and the weights of norms don't.
};
struct Update {
  std::vector<UpdateSlice> slices;
};
struct NoteLoss {
  TensorView from;
  std::int32_t microbatch = 0;  // Of the rank.
};
using Action = std::variant<Zero, CopyBytes, FillInput, RunOp, RunLossPart, RunRingStep, Add, Convert,
                            SumSquares, Update, NoteLoss>;

// ---- What it does with others.

struct Peer {
  RankId rank;
  std::int32_t instruction = 0;  // Of the peer's role: its side of the same operation.
};
struct Reduce {
  TensorView to;
  std::vector<TensorView> from;  // By position in the group.
  Reduction reduction = Reduction::kSum;
};
// The sums of squares of all peers, in one.
struct MergeNorm {};
using Transfer = std::variant<CopyBytes, Reduce, MergeNorm>;

// Once all of `after` have come as far as this phase, `work` is done.
struct ExchangePhase {
  std::vector<Peer> after;
  std::vector<Transfer> work;
};
struct Exchange {
  std::vector<ExchangePhase> phases;
  std::vector<Peer> readers;      // Have to be past their last phase before our buffers change again.
  std::vector<RankId> listeners;  // To be woken whenever we come further.
};

struct BoundInstruction {
  std::vector<std::int32_t> after;           // Of this step.
  std::vector<std::int32_t> after_previous;  // Of the step before.
  std::vector<Action> actions;
  Exchange exchange;
};

struct BoundRank {
  RankId rank;
  std::vector<BoundInstruction> instructions;      // As the role's.
  std::vector<std::vector<std::int32_t>> streams;  // By stream: its instructions, in order.
  std::unique_ptr<std::byte[]> scratch;            // What ops of one launch pass on without a buffer.
  std::int64_t scratch_bytes = 0;
};

// THROWS Error(kRuntime) naming rank and instruction where the Program can't be run as it stands: an op that
// sees one dimension divided in two ways, a source that nobody has. REQUIRES: verify(program) is empty, a
// memory plan has placed every buffer, and the program was lowered from `graph`.
BoundRank bind_rank(const Graph& graph, const World& world, RankId rank);
// Without what it does with others: needs no memory of theirs. `scratch` gives that many bytes of the memory
// that the rank's kernels use; without it they are the processor's.
using ScratchSource = std::function<std::byte*(std::int64_t bytes)>;
BoundRank bind_computes(const Graph& graph, const World& world, RankId rank,
                        const ScratchSource& scratch = {});

}  // namespace orrery::host

#pragma once
// How tensor, sequence and context parallelism divide the graph's tensors, derived from the roles of their
// dimensions alone:
//   - heads, kv heads, ffn and vocab are divided over the tensor-parallel group; a tensor with such a
//     dimension is *sharded*, an op that touches one is a sharded op and sees whole sequences;
//   - with sequence parallelism every other activation with a sequence dimension is *scattered*: each
//     rank keeps sequence / degree of it. A sharded op gathers it first;
//   - what a sharded op makes without a sharded dimension is a sum over the group (a divided dimension
//     was contracted) and must be reduced, to a whole tensor or, scattered, to each rank's part;
//   - a sum of nothing but such sums, which nobody else reads, is one too, and only it is reduced (with the
//   pass
//     merge-collectives);
//   - context parallelism divides the sequence of every activation and input, in zigzag order. Attention
//     alone mixes positions: it gathers the keys and values, and their gradients are sums over the group; or
//     they travel round the group block by block, and their gradients with them (planner/ring_attention.cpp);
//   - expert parallelism divides the experts' weights, and the rows that experts work on: where tokens are
//     dispatched and combined a rank has the rows of its own tokens for all experts (split along the slots),
//     where experts work it has the rows of all the group's tokens for its own experts. An all-to-all stands
//     between, behind the op that makes the rows: they are kept where they are read. Rows are scattered like
//     sequences. An expert's matrices are divided over their own group, which may be smaller than the
//     tensor-parallel one; whole experts need whole rows only.
// The collectives of Megatron-LM's column- and row-parallel layers (Shoeybi et al. 2019; Korthikanti et
// al. 2022) and of all-gather context parallelism (Grattafiori et al. 2024, §3.3.2) follow from these rules;
// (GShard's dispatch and combine: Lepikhin et al. 2020.) None is written down for a particular layer.

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

// The axes along which tensors are divided; invalid where the degree is 1.
struct ShardingAxes {
  AxisId tensor, context, expert, expert_tensor;
};

class Sharding {
 public:
  // REQUIRES: the degrees divide what check(plan, graph) says they must.
  Sharding(const Graph& graph, const Plan& plan, ShardingAxes axes);

  std::int32_t context_parallel() const { return context_parallel_; }
  const ShardingAxes& axes() const { return axes_; }
  // Parameters of experts; their gradients are summed over fewer ranks.
  bool of_expert(TensorId parameter) const { return of_expert_[parameter.index()]; }
  // Whether the tensor (the op) is divided over the tensor-parallel group.
  bool sharded(TensorId tensor) const { return sharded_tensor_[tensor.index()]; }
  bool sharded(OpId op) const { return sharded_op_[op.index()]; }

  // How a tensor lies between ops; how the op needs an input; how it leaves an output. Where these differ,
  // a collective stands between.
  PlacementId stored(TensorId tensor) const { return stored_[tensor.index()]; }
  PlacementId needed(OpId op, TensorId input) const;
  PlacementId made(OpId op, TensorId output) const;
  // Rows as experts see them, scattered or not as stored; of other tensors as stored.
  PlacementId of_experts(TensorId tensor) const { return of_experts_[tensor.index()]; }
  // How an output lies once its partial sums are added: as stored, or as made where there are none; rows that
  // tokens read are still at their experts.
  PlacementId summed(OpId op, TensorId output) const;
  // The axis over which an op's output is a partial sum; invalid: it isn't one.
  AxisId partial_over(OpId op, TensorId output) const;
  // A partial sum that is left so: its one reader adds it to others.
  bool unreduced(TensorId tensor) const { return unreduced_[tensor.index()]; }
  // Whether an op meets keys and values that travel round the context-parallel group.
  bool rings(OpId op) const { return ring_ && attends(op); }
  // Keys, values or their gradients of the position so many before the rank's own.
  PlacementId shifted(TensorId tensor, std::int32_t positions) const;
  // A parameter's gradient that each rank of the tensor-parallel group has only a part of, though all hold
  // the parameter.
  bool partial_gradient(OpId op, TensorId output) const;

  // Local sizes of the dimensions, as the op sees them.
  const Sizes& sizes(OpId op) const {
    const bool whole = sharded(op) || sums_partials_[op.index()];
    return sizes_[expert_op_[op.index()] ? 1 : 0][scatter_ && !whole ? 1 : 0];
  }
  std::int64_t bytes(TensorId tensor, PlacementId placement) const;
  std::int64_t stored_bytes(TensorId tensor) const { return bytes(tensor, stored(tensor)); }
  std::int64_t stored_elements(TensorId tensor) const { return elements(tensor, stored(tensor)); }

  // What a Program needs to know of it: Program::placements and Program::sizes.
  const std::vector<Placement>& placements() const { return placements_; }
  const Sizes& global_sizes() const { return global_; }

 private:
  // Where the rows of experts are: with their tokens, or with their experts.
  enum class Rows : std::uint8_t { kOfTokens, kOfExperts };

  std::int32_t degree(AxisId axis) const;
  std::int64_t elements(TensorId tensor, PlacementId placement) const;
  void set_sizes(const Plan& plan);
  void classify_ops();
  void find_partial_sums();
  void add_shifted(const Op& op);
  bool attends(OpId op) const;
  // Of experts: their weights and what they make of rows.
  bool at_experts(TensorId tensor) const { return has_rows_[tensor.index()] || of_expert_[tensor.index()]; }
  std::int32_t dividing_degree(TensorId tensor) const {
    return at_experts(tensor) ? expert_tensor_parallel_ : tensor_parallel_;
  }
  bool has_tokens(TensorId tensor) const;
  Placement place(TensorId tensor, bool over_context, bool scattered, Rows rows) const;
  PlacementId intern(const Placement& placement);

  const Graph& graph_;
  std::int32_t tensor_parallel_, context_parallel_, expert_parallel_, expert_tensor_parallel_;
  ShardingAxes axes_;
  bool scatter_;  // Sequence parallelism is on and there is something to divide.
  bool ring_;
  Sizes global_;
  std::array<std::array<Sizes, 2>, 2> sizes_;  // [as experts see them][scattered]
  std::vector<bool> sharded_tensor_, sharded_op_, of_expert_, expert_op_, has_rows_, read_at_tokens_;
  std::vector<bool> unreduced_, sums_partials_;
  std::vector<Placement> placements_;
  // By tensor: as stored; with its whole sequence (or slots) over the tensor-parallel group, where its op is
  // not (is) an expert's; with its whole sequence over the context-parallel group too; rows as stored, but at
  // tokens.
  std::vector<PlacementId> stored_, gathered_, of_experts_, everywhere_, of_tokens_;
  // By the placement of keys and values at home, by positions − 1.
  std::map<PlacementId, std::vector<PlacementId>> shifted_;
};

// Size of the vocabulary as stored: a multiple of `multiple` · degree (Megatron-LM pads so).
std::int64_t padded_vocab(std::int64_t vocab, std::int64_t multiple, std::int32_t degree);

}  // namespace orrery

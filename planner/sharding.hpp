#pragma once
// How tensor (and sequence) parallelism divides the graph's tensors, derived from the roles of their
// dimensions alone:
//   - heads, kv heads, ffn and vocab are divided over the tensor-parallel group; a tensor with such a
//     dimension is *sharded*, an op that touches one is a sharded op and sees whole sequences;
//   - with sequence parallelism every other activation with a sequence dimension is *scattered*: each
//     rank keeps sequence / degree of it. A sharded op gathers it first;
//   - what a sharded op makes without a sharded dimension is a sum over the group (a divided dimension
//     was contracted) and must be reduced, to a whole tensor or, scattered, to each rank's part.
// The collectives of Megatron-LM's column- and row-parallel layers (Shoeybi et al. 2019; Korthikanti et
// al. 2022) follow from these rules; none is written down for a particular layer.

#include <cstdint>
#include <vector>

#include "model/graph.hpp"
#include "planner/plan.hpp"

namespace orrery {

class Sharding {
 public:
  // REQUIRES: the degree divides what check(plan, graph) says it must.
  Sharding(const Graph& graph, const Plan& plan, std::int32_t tensor_parallel);

  std::int32_t degree() const { return degree_; }
  bool sharded(TensorId tensor) const { return sharded_tensor_[tensor.index()]; }
  bool sharded(OpId op) const { return sharded_op_[op.index()]; }
  bool scattered(TensorId tensor) const { return scattered_[tensor.index()]; }
  // The op must see the whole sequence of an input that is scattered.
  bool gathers(OpId op, TensorId input) const { return sharded(op) && scattered(input); }
  // The op's output is a partial sum over the tensor-parallel group.
  bool reduces(OpId op, TensorId output) const;
  // A parameter's gradient that each rank of the group has only a part of, though all hold the parameter.
  bool partial_gradient(OpId op, TensorId output) const;

  // Local sizes of the dimensions, as the op sees them.
  const Sizes& sizes(OpId op) const { return sharded(op) || !scatter_ ? whole_ : scattered_sizes_; }
  // As stored on one rank; gathered: the whole sequence.
  std::int64_t stored_bytes(TensorId tensor) const;
  std::int64_t gathered_bytes(TensorId tensor) const;
  std::int64_t stored_elements(TensorId tensor) const;

 private:
  bool has_sequence(TensorId tensor) const;

  const Graph& graph_;
  std::int32_t degree_;
  bool scatter_;  // Sequence parallelism is on and there is something to divide.
  Sizes whole_, scattered_sizes_;
  std::vector<bool> sharded_tensor_, sharded_op_, scattered_;
};

// Size of the vocabulary as stored: a multiple of `multiple` · degree (Megatron-LM pads so).
std::int64_t padded_vocab(std::int64_t vocab, std::int64_t multiple, std::int32_t degree);

}  // namespace orrery

#include "planner/sharding.hpp"

#include <algorithm>

namespace orrery {
namespace {

bool divided(DimRole role) {
  return role == DimRole::kHeads || role == DimRole::kKvHeads || role == DimRole::kFfn ||
         role == DimRole::kVocab;
}

std::int64_t local_size(const Dim& dim, std::int64_t size, std::int32_t degree, std::int64_t vocab_multiple) {
  switch (dim.role) {
    case DimRole::kHeads:
    case DimRole::kKvHeads:
    case DimRole::kFfn: return size / degree;
    case DimRole::kVocab: return padded_vocab(size, vocab_multiple, degree) / degree;
    default: return size;
  }
}

}  // namespace

std::int64_t padded_vocab(std::int64_t vocab, std::int64_t multiple, std::int32_t degree) {
  const std::int64_t unit = multiple * degree;
  return (vocab + unit - 1) / unit * unit;
}

Sharding::Sharding(const Graph& graph, const Plan& plan, std::int32_t tensor_parallel)
    : graph_(graph),
      degree_(tensor_parallel),
      scatter_(plan.sequence_parallel && tensor_parallel > 1),
      whole_(bind(graph, plan.microbatch_size, plan.sequence)) {
  for (std::size_t d = 0; d < graph.dims.size(); ++d) {
    whole_[d] = local_size(graph.dims[d], whole_[d], degree_, plan.vocab_multiple);
  }
  scattered_sizes_ = whole_;
  if (scatter_) {
    for (std::size_t d = 0; d < graph.dims.size(); ++d) {
      if (graph.dims[d].role == DimRole::kSequence) scattered_sizes_[d] /= degree_;
    }
  }
  sharded_tensor_.resize(graph.tensors.size());
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const auto& shape = graph.tensors[t].shape;
    sharded_tensor_[t] = degree_ > 1 && std::any_of(shape.begin(), shape.end(),
                                                    [&](DimId dim) { return divided(graph[dim].role); });
  }
  const auto any_sharded = [&](const std::vector<TensorId>& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [&](TensorId tensor) { return sharded(tensor); });
  };
  sharded_op_.resize(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    sharded_op_[o] = any_sharded(graph.ops[o].inputs) || any_sharded(graph.ops[o].outputs);
  }
  scattered_.resize(graph.tensors.size());
  if (!scatter_) return;
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    const bool activation = tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kGradient;
    // The loss's log-sum-exp comes whole out of its own small all-reduces.
    const bool of_loss = tensor.producer.valid() && graph[tensor.producer].kind == OpKind::kCrossEntropy;
    scattered_[t] = activation && !of_loss && !sharded_tensor_[t] && has_sequence(TensorId(t));
  }
}

bool Sharding::has_sequence(TensorId tensor) const {
  const auto& shape = graph_[tensor].shape;
  return std::any_of(shape.begin(), shape.end(),
                     [&](DimId dim) { return graph_[dim].role == DimRole::kSequence; });
}

bool Sharding::reduces(OpId op, TensorId output) const {
  if (!sharded(op) || sharded(output) || !has_sequence(output)) return false;
  const OpKind kind = graph_[op].kind;
  return kind == OpKind::kMatmul || kind == OpKind::kMatmulGradInput || kind == OpKind::kEmbedding;
}

bool Sharding::partial_gradient(OpId op, TensorId output) const {
  if (degree_ == 1 || graph_[output].kind != TensorKind::kParameterGradient || sharded(output)) return false;
  // A bias gradient of a matmul sums over whole sequences, which every rank has. Norms and positions see
  // only the rank's own heads (sharded op) or its own part of the sequence (scattered).
  if (graph_[op].kind == OpKind::kMatmulGradWeight) return !sharded(op) && scatter_;
  return sharded(op) || scatter_;
}

std::int64_t Sharding::stored_bytes(TensorId tensor) const {
  return size_bytes(graph_, tensor, scattered(tensor) ? scattered_sizes_ : whole_);
}

std::int64_t Sharding::gathered_bytes(TensorId tensor) const { return size_bytes(graph_, tensor, whole_); }

std::int64_t Sharding::stored_elements(TensorId tensor) const {
  return element_count(graph_, tensor, scattered(tensor) ? scattered_sizes_ : whole_);
}

}  // namespace orrery

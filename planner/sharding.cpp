#include "planner/sharding.hpp"

#include <algorithm>

namespace orrery {
namespace {

bool divided(DimRole role) {
  return role == DimRole::kHeads || role == DimRole::kKvHeads || role == DimRole::kFfn ||
         role == DimRole::kVocab;
}

bool is_activation(const Tensor& tensor) {
  return tensor.kind == TensorKind::kActivation || tensor.kind == TensorKind::kGradient;
}

bool has_role(const Graph& graph, TensorId tensor, DimRole role) {
  const auto& shape = graph[tensor].shape;
  return std::any_of(shape.begin(), shape.end(), [&](DimId dim) { return graph[dim].role == role; });
}

// These work on rows that lie with their tokens.
bool at_tokens(OpKind kind) {
  return kind == OpKind::kDispatch || kind == OpKind::kDispatchGrad || kind == OpKind::kCombine ||
         kind == OpKind::kCombineGrad;
}

std::vector<TensorId> tensors_of(const Op& op) {
  std::vector<TensorId> all = op.inputs;
  all.insert(all.end(), op.outputs.begin(), op.outputs.end());
  return all;
}

}  // namespace

std::int64_t padded_vocab(std::int64_t vocab, std::int64_t multiple, std::int32_t degree) {
  const std::int64_t unit = multiple * degree;
  return (vocab + unit - 1) / unit * unit;
}

Sharding::Sharding(const Graph& graph, const Plan& plan, ShardingAxes axes)
    : graph_(graph),
      tensor_parallel_(plan.tensor_parallel()),
      context_parallel_(plan.context_parallel),
      expert_parallel_(plan.expert_parallel),
      expert_tensor_parallel_(plan.expert_tensor_parallel()),
      axes_(axes),
      scatter_(plan.sequence_parallel && tensor_parallel_ > 1),
      ring_(plan.context_form == ContextForm::kRing) {
  set_sizes(plan);
  classify_ops();
  unreduced_.resize(graph.tensors.size());
  sums_partials_.resize(graph.ops.size());
  if (plan.passes.contains(LoweringPass::kMergeCollectives)) find_partial_sums();
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    const TensorId id(static_cast<std::int64_t>(t));
    const Tensor& tensor = graph.tensors[t];
    // The loss's log-sum-exp comes whole out of its own small all-reduces.
    const bool of_loss = tensor.producer.valid() && graph[tensor.producer].kind == OpKind::kCrossEntropy;
    const bool scattered = scatter_ && is_activation(tensor) && !of_loss && !sharded(id) && !unreduced(id);
    const Rows rows = read_at_tokens_[t] ? Rows::kOfTokens : Rows::kOfExperts;
    stored_.push_back(intern(place(id, true, scattered, rows)));
    gathered_.push_back(intern(place(id, true, false, Rows::kOfExperts)));
    everywhere_.push_back(intern(place(id, false, false, Rows::kOfExperts)));
    of_tokens_.push_back(intern(place(id, true, scattered, Rows::kOfTokens)));
    of_experts_.push_back(intern(place(id, true, scattered, Rows::kOfExperts)));
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (rings(OpId(static_cast<std::int64_t>(o)))) add_shifted(graph.ops[o]);
  }
}

// Where keys and values are while they travel; of a backward their gradients too.
void Sharding::add_shifted(const Op& op) {
  std::vector<TensorId> travel = {op.inputs[1], op.inputs[2]};
  if (op.kind == OpKind::kAttentionGrad) travel.insert(travel.end(), {op.outputs[1], op.outputs[2]});
  for (const TensorId tensor : travel) {
    const PlacementId home = stored(tensor);
    const auto [found, is_new] = shifted_.try_emplace(home);
    if (!is_new) continue;
    for (std::int32_t positions = 1; positions < context_parallel_; ++positions) {
      Placement placement = placements_[home.index()];
      for (Split& split : placement.splits) {
        if (split.axis == axes_.context) split.shift = positions;
      }
      found->second.push_back(intern(placement));
    }
  }
}

PlacementId Sharding::shifted(TensorId tensor, std::int32_t positions) const {
  if (positions % context_parallel_ == 0) return stored(tensor);
  return shifted_.at(stored(tensor))[static_cast<std::size_t>(positions - 1)];
}

// A rank's slots follow from its own tokens; all slots are those of the ranks that exchange rows.
void Sharding::set_sizes(const Plan& plan) {
  const std::int32_t token_ranks = context_parallel_ * (scatter_ ? tensor_parallel_ : 1);
  const Sizes local =
      bind(graph_, plan.microbatch_size, plan.sequence / token_ranks, plan.expert_slot_factor());
  global_ = bind(graph_, plan.microbatch_size, plan.sequence);
  for (std::size_t d = 0; d < graph_.dims.size(); ++d) {
    if (graph_.dims[d].role == DimRole::kVocab) {
      global_[d] = padded_vocab(global_[d], plan.vocab_multiple, tensor_parallel_);
    }
    if (graph_.dims[d].role == DimRole::kSlots) {
      global_[d] = local[d] * expert_parallel_ * (scatter_ ? expert_tensor_parallel_ : 1);
    }
  }
  for (const bool expert : {false, true}) {
    for (const bool scattered : {false, true}) {
      Sizes& sizes = sizes_[expert ? 1 : 0][scattered ? 1 : 0];
      sizes = global_;
      for (std::size_t d = 0; d < graph_.dims.size(); ++d) {
        const DimRole role = graph_.dims[d].role;
        if (divided(role)) sizes[d] /= expert ? expert_tensor_parallel_ : tensor_parallel_;
        if (role == DimRole::kSequence) sizes[d] /= context_parallel_;
        if (role == DimRole::kSequence && scattered && scatter_) sizes[d] /= tensor_parallel_;
        if (role == DimRole::kSlots && scattered && scatter_) sizes[d] /= expert_tensor_parallel_;
        if (role == (expert ? DimRole::kExperts : DimRole::kSlots)) sizes[d] /= expert_parallel_;
      }
    }
  }
}

void Sharding::classify_ops() {
  const std::size_t tensors = graph_.tensors.size(), ops = graph_.ops.size();
  has_rows_.resize(tensors);
  for (std::size_t t = 0; t < tensors; ++t) {
    has_rows_[t] = has_role(graph_, TensorId(static_cast<std::int64_t>(t)), DimRole::kSlots);
  }
  const auto any = [](const std::vector<TensorId>& all, const std::vector<bool>& of) {
    return std::any_of(all.begin(), all.end(), [&](TensorId tensor) { return of[tensor.index()]; });
  };
  expert_op_.resize(ops);
  of_expert_.resize(tensors);
  read_at_tokens_.resize(tensors);
  for (std::size_t o = 0; o < ops; ++o) {
    const Op& op = graph_.ops[o];
    if (at_tokens(op.kind)) {
      for (const TensorId input : op.inputs) read_at_tokens_[input.index()] = true;
    }
    const std::vector<TensorId> all = tensors_of(op);
    expert_op_[o] = any(all, has_rows_) && !at_tokens(op.kind);
    if (!expert_op_[o]) continue;
    for (const TensorId tensor : all) {
      const TensorKind kind = graph_[tensor].kind;
      if (kind == TensorKind::kParameter || kind == TensorKind::kParameterGradient) {
        of_expert_[tensor.index()] = true;
      }
    }
  }
  sharded_tensor_.resize(tensors);
  for (std::size_t t = 0; t < tensors; ++t) {
    const auto& shape = graph_.tensors[t].shape;
    const bool divides = dividing_degree(TensorId(static_cast<std::int64_t>(t))) > 1;
    sharded_tensor_[t] = divides && std::any_of(shape.begin(), shape.end(),
                                                [&](DimId dim) { return divided(graph_[dim].role); });
  }
  sharded_op_.resize(ops);
  for (std::size_t o = 0; o < ops; ++o) sharded_op_[o] = any(tensors_of(graph_.ops[o]), sharded_tensor_);
}

void Sharding::find_partial_sums() {
  std::vector<std::int32_t> readers(graph_.tensors.size());
  for (const Op& op : graph_.ops) {
    for (const TensorId input : op.inputs) ++readers[input.index()];
  }
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const Op& op = graph_.ops[o];
    if (op.kind != OpKind::kAdd) continue;
    sums_partials_[o] = std::all_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
      const OpId producer = graph_[input].producer;
      return producer.valid() && graph_[producer].block == op.block && readers[input.index()] == 1 &&
             partial_over(producer, input) == axes_.tensor && axes_.tensor.valid();
    });
    for (const TensorId input : op.inputs) {
      unreduced_[input.index()] = unreduced_[input.index()] || sums_partials_[o];
    }
  }
}

std::int32_t Sharding::degree(AxisId axis) const {
  if (axis == axes_.tensor) return tensor_parallel_;
  if (axis == axes_.expert_tensor) return expert_tensor_parallel_;
  return axis == axes_.context ? context_parallel_ : expert_parallel_;
}

bool Sharding::has_tokens(TensorId tensor) const {
  return has_rows_[tensor.index()] || has_role(graph_, tensor, DimRole::kSequence);
}

Placement Sharding::place(TensorId id, bool over_context, bool scattered, Rows rows) const {
  const Tensor& tensor = graph_[id];
  const bool tokens = is_activation(tensor) || tensor.kind == TensorKind::kInput;
  Placement placement;
  for (const DimId dim : tensor.shape) {
    const DimRole role = graph_[dim].role;
    if (divided(role) && dividing_degree(id) > 1) {
      placement.splits.push_back({dim, at_experts(id) ? axes_.expert_tensor : axes_.tensor});
    }
    if (role == DimRole::kSequence && tokens) {
      if (over_context && context_parallel_ > 1) placement.splits.push_back({dim, axes_.context, true});
      if (scattered) placement.splits.push_back({dim, axes_.tensor});
    }
    if (role == DimRole::kSlots) {
      if (scattered && expert_tensor_parallel_ > 1) placement.splits.push_back({dim, axes_.expert_tensor});
      if (rows == Rows::kOfTokens && expert_parallel_ > 1) placement.splits.push_back({dim, axes_.expert});
    }
    const bool rows_of_experts = has_rows_[id.index()] && rows == Rows::kOfExperts;
    if (role == DimRole::kExperts && expert_parallel_ > 1 && (rows_of_experts || of_expert_[id.index()])) {
      placement.splits.push_back({dim, axes_.expert});
    }
  }
  return placement;
}

PlacementId Sharding::intern(const Placement& placement) {
  const auto found = std::find(placements_.begin(), placements_.end(), placement);
  const PlacementId id(found - placements_.begin());
  if (found == placements_.end()) placements_.push_back(placement);
  return id;
}

bool Sharding::attends(OpId op) const {
  return context_parallel_ > 1 &&
         (graph_[op].kind == OpKind::kAttention || graph_[op].kind == OpKind::kAttentionGrad);
}

PlacementId Sharding::needed(OpId op, TensorId input) const {
  // Keys and values are attention's second and third input.
  const bool gathers = attends(op) && !ring_;
  if (gathers && (input == graph_[op].inputs[1] || input == graph_[op].inputs[2])) {
    return everywhere_[input.index()];
  }
  if (has_rows_[input.index()] && at_tokens(graph_[op].kind)) return of_tokens_[input.index()];
  if (sharded(op)) return gathered_[input.index()];
  return has_rows_[input.index()] ? of_experts_[input.index()] : stored(input);
}

PlacementId Sharding::made(OpId op, TensorId output) const {
  const AxisId partial = partial_over(op, output);
  if (partial.valid()) {
    return partial == axes_.context ? everywhere_[output.index()] : gathered_[output.index()];
  }
  return summed(op, output);
}

PlacementId Sharding::summed(OpId op, TensorId output) const {
  if (!has_rows_[output.index()]) return stored(output);
  return at_tokens(graph_[op].kind) ? of_tokens_[output.index()] : of_experts_[output.index()];
}

AxisId Sharding::partial_over(OpId op, TensorId output) const {
  const Op& of = graph_[op];
  if (sums_partials_[op.index()]) return axes_.tensor;
  const bool of_keys =
      of.kind == OpKind::kAttentionGrad && (output == of.outputs[1] || output == of.outputs[2]);
  if (attends(op) && of_keys) return ring_ ? AxisId() : axes_.context;
  if (!sharded(op) || sharded(output) || !has_tokens(output)) return {};
  const bool contracts = of.kind == OpKind::kMatmul || of.kind == OpKind::kMatmulGradInput ||
                         of.kind == OpKind::kEmbedding || of.kind == OpKind::kHeadConcatGrad;
  if (!contracts) return {};
  return expert_op_[op.index()] ? axes_.expert_tensor : axes_.tensor;
}

bool Sharding::partial_gradient(OpId op, TensorId output) const {
  if (tensor_parallel_ == 1 || graph_[output].kind != TensorKind::kParameterGradient || sharded(output)) {
    return false;
  }
  // Where experts are divided their products see all rows; where they are whole, other ranks have others.
  if (of_expert_[output.index()]) return false;
  // A bias gradient of a matmul sums over whole sequences, which every rank has. Norms and positions see
  // only the rank's own heads (sharded op) or its own part of the sequence (scattered).
  if (graph_[op].kind == OpKind::kMatmulGradWeight) return !sharded(op) && scatter_;
  return sharded(op) || scatter_;
}

std::int64_t Sharding::elements(TensorId tensor, PlacementId placement) const {
  std::int64_t count = element_count(graph_, tensor, global_);
  for (const Split& split : placements_[placement.index()].splits) count /= degree(split.axis);
  return count;
}

std::int64_t Sharding::bytes(TensorId tensor, PlacementId placement) const {
  return elements(tensor, placement) * size_bytes(graph_[tensor].dtype);
}

}  // namespace orrery

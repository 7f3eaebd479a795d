// Reverse-mode differentiation of a forward Graph, one rule per op kind.

#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "model/transformer.hpp"

namespace orrery {
namespace {

// Whether an output carries a gradient: the statistics that attention and cross entropy keep, dropout's
// mask, a router's picks and where their rows stand are the second output and only read.
bool differentiable_output(OpKind kind, std::size_t output) {
  const bool keeps_second = kind == OpKind::kAttention || kind == OpKind::kDropout ||
                            kind == OpKind::kCrossEntropy || kind == OpKind::kRoute ||
                            kind == OpKind::kDispatch;
  return !keeps_second || output == 0;
}

class Backward {
 public:
  explicit Backward(const Graph& forward);
  Graph run();

 private:
  OpId find_loss() const;
  void find_needs();
  void count_uses();
  void differentiate(OpId id);
  void differentiate_matmul(OpId id);
  void differentiate_attention(OpId id, TensorId dy);
  void differentiate_experts(OpId id, TensorId dy);
  void add_op(OpId forward, OpKind kind, std::string_view suffix, std::vector<TensorId> inputs,
              const std::vector<TensorId>& differentiated);
  std::string gradient_name(TensorId of) const;
  TensorId new_gradient(TensorId of, OpId user);
  void contribute(TensorId of, TensorId part, OpId user);
  TensorId output_gradient(const Op& op, std::size_t output) const;

  Graph graph_;
  OpId loss_;
  std::vector<char> leads_;         // By forward op: to the loss.
  std::vector<char> needs_;         // By forward tensor: depends on a parameter.
  std::vector<std::int32_t> uses_;  // By forward tensor: how many gradients will come.
  std::vector<std::int32_t> came_;
  std::vector<TensorId> gradient_;  // By forward tensor: the sum of those that came.
  std::int32_t sums_ = 0;           // Accumulating ops that the op at hand has made.
};

Backward::Backward(const Graph& forward) {
  // About 2.5 backward tensors and 1.5 backward ops for each forward one.
  graph_.tensors.reserve(forward.tensors.size() * 3);
  graph_.ops.reserve(forward.ops.size() * 3);
  graph_.name = forward.name;
  graph_.layers = forward.layers;
  graph_.dims = forward.dims;
  graph_.tensors.insert(graph_.tensors.end(), forward.tensors.begin(), forward.tensors.end());
  graph_.ops.insert(graph_.ops.end(), forward.ops.begin(), forward.ops.end());
  const std::size_t tensors = forward.tensors.size();
  needs_.assign(tensors, 0);
  uses_.assign(tensors, 0);
  came_.assign(tensors, 0);
  gradient_.assign(tensors, TensorId());
  leads_.assign(forward.ops.size(), 0);
}

OpId Backward::find_loss() const {
  OpId loss;
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    const Op& op = graph_.ops[i];
    if (op.phase != Phase::kForward) {
      fail(ErrorKind::kInput, "graph {}: op {} isn't a forward op; add_backward takes a forward graph",
           graph_.name, op.name);
    }
    if (op.kind != OpKind::kCrossEntropy) continue;
    if (loss.valid()) {
      fail(ErrorKind::kInput, "graph {}: two losses, {} and {}; expected one cross entropy", graph_.name,
           graph_[loss].name, op.name);
    }
    loss = OpId(static_cast<std::int64_t>(i));
  }
  if (!loss.valid()) {
    fail(ErrorKind::kInput, "graph {}: no loss; expected one cross entropy", graph_.name);
  }
  return loss;
}

void Backward::find_needs() {
  for (std::size_t i = 0; i < needs_.size(); ++i) {
    needs_[i] = graph_.tensors[i].kind == TensorKind::kParameter;
  }
  for (const Op& op : graph_.ops) {
    bool any = false;
    for (const TensorId input : op.inputs) any = any || needs_[input.index()];
    for (std::size_t i = 0; any && i < op.outputs.size(); ++i) {
      needs_[op.outputs[i].index()] = differentiable_output(op.kind, i);
    }
  }
}

void Backward::count_uses() {
  leads_[loss_.index()] = 1;
  for (std::size_t i = graph_.ops.size(); i-- > 0;) {
    const Op& op = graph_.ops[i];
    for (const TensorId output : op.outputs) leads_[i] = leads_[i] || uses_[output.index()] > 0;
    if (!leads_[i]) continue;
    for (const TensorId input : op.inputs) uses_[input.index()] += needs_[input.index()];
  }
}

std::string Backward::gradient_name(TensorId of) const {
  const std::string name = "d_" + graph_[of].name;
  const bool parameter = graph_[of].kind == TensorKind::kParameter;
  if (parameter || uses_[of.index()] == 1) return name;
  return name + ".part" + std::to_string(came_[of.index()] + 1);
}

// The tensor that a backward op writes for one of its op's inputs.
TensorId Backward::new_gradient(TensorId of, OpId user) {
  const bool parameter = graph_[of].kind == TensorKind::kParameter;
  if (parameter && gradient_[of.index()].valid()) return gradient_[of.index()];
  Tensor made;
  made.name = gradient_name(of);
  made.kind = parameter ? TensorKind::kParameterGradient : TensorKind::kGradient;
  made.dtype = parameter ? DType::kFp32 : graph_[of].dtype;
  made.shape = graph_[of].shape;
  made.block = parameter ? graph_[of].block : graph_[user].block;
  made.producer = OpId(static_cast<std::int64_t>(graph_.ops.size()));
  made.gradient_of = of;
  graph_.tensors.push_back(std::move(made));
  return TensorId(static_cast<std::int64_t>(graph_.tensors.size()) - 1);
}

// Adds `part` to the gradient of `of`. The sum is taken as soon as the second part comes, so that it
// stands in the block of the uses and a pipeline stage sends one gradient, not its parts.
void Backward::contribute(TensorId of, TensorId part, OpId user) {
  const std::size_t i = of.index();
  if (!needs_[i]) return;
  ++came_[i];
  if (graph_[of].kind == TensorKind::kParameter || !gradient_[i].valid()) {
    gradient_[i] = part;
    return;
  }
  const std::string name = "d_" + graph_[of].name;
  const std::string number = came_[i] == uses_[i] ? "" : std::to_string(came_[i]);
  Tensor sum = graph_[of];
  sum.name = number.empty() ? name : name + ".sum" + number;
  sum.kind = TensorKind::kGradient;
  sum.block = graph_[user].block;
  sum.producer = OpId(static_cast<std::int64_t>(graph_.ops.size()));
  sum.gradient_of = of;
  graph_.tensors.push_back(std::move(sum));
  const TensorId total(static_cast<std::int64_t>(graph_.tensors.size()) - 1);

  Op op;
  op.name = graph_[user].name + ".accumulate";
  if (sums_ > 0) op.name += std::to_string(sums_ + 1);
  ++sums_;
  op.kind = OpKind::kAdd;
  op.phase = Phase::kBackward;
  op.block = graph_[user].block;
  op.inputs = {gradient_[i], part};
  op.outputs = {total};
  op.forward_of = user;
  graph_.ops.push_back(std::move(op));
  gradient_[i] = total;
}

TensorId Backward::output_gradient(const Op& op, std::size_t output) const {
  const TensorId gradient = gradient_[op.outputs[output].index()];
  if (!gradient.valid()) {
    fail(ErrorKind::kInput, "graph {}: output {} of op {} doesn't lead to the loss but its other outputs do",
         graph_.name, graph_[op.outputs[output]].name, op.name);
  }
  return gradient;
}

// One backward op for the forward op `forward`, with one output per differentiated tensor.
void Backward::add_op(OpId forward, OpKind kind, std::string_view suffix, std::vector<TensorId> inputs,
                      const std::vector<TensorId>& differentiated) {
  std::vector<TensorId> outputs;
  for (const TensorId tensor : differentiated) outputs.push_back(new_gradient(tensor, forward));
  Op op;
  op.name = graph_[forward].name;
  op.name += suffix;
  op.kind = kind;
  op.phase = Phase::kBackward;
  op.block = graph_[forward].block;
  op.inputs = std::move(inputs);
  op.outputs = outputs;
  op.attributes = graph_[forward].attributes;
  op.forward_of = forward;
  graph_.ops.push_back(std::move(op));
  for (std::size_t i = 0; i < outputs.size(); ++i) contribute(differentiated[i], outputs[i], forward);
}

void Backward::differentiate_matmul(OpId id) {
  const std::vector<TensorId> inputs = graph_[id].inputs;
  const std::size_t n = graph_[id].outputs.size();
  std::vector<TensorId> gradients;
  for (std::size_t i = 0; i < n; ++i) gradients.push_back(output_gradient(graph_[id], i));
  // The input's gradient first: others wait for it (the block before, a tensor-parallel all-reduce).
  if (needs_[inputs[0].index()]) {
    std::vector<TensorId> operands = gradients;
    operands.insert(operands.end(), inputs.begin() + 1, inputs.begin() + 1 + static_cast<std::ptrdiff_t>(n));
    add_op(id, OpKind::kMatmulGradInput, ".grad_input", std::move(operands), {inputs[0]});
  }
  std::vector<TensorId> operands = {inputs[0]};
  operands.insert(operands.end(), gradients.begin(), gradients.end());
  add_op(id, OpKind::kMatmulGradWeight, ".grad_weight", std::move(operands),
         {inputs.begin() + 1, inputs.end()});
}

// The softmax is worked out again from the operands, the output and its log-sum-exp.
void Backward::differentiate_attention(OpId id, TensorId dy) {
  const std::vector<TensorId> in = graph_[id].inputs;
  std::vector<TensorId> operands = in;
  operands.insert(operands.end(), {graph_[id].outputs[0], graph_[id].outputs[1], dy});
  add_op(id, OpKind::kAttentionGrad, ".grad", std::move(operands), in);
}

void Backward::differentiate_experts(OpId id, TensorId dy) {
  const OpKind kind = graph_[id].kind;
  const std::vector<TensorId> in = graph_[id].inputs;
  const std::vector<TensorId> out = graph_[id].outputs;
  if (kind == OpKind::kRoute) {
    return add_op(id, OpKind::kRouteGrad, ".grad", {in[0], out[1], dy}, {in[0]});
  }
  const bool weighted = in.size() == 3;
  if (kind == OpKind::kDispatch) {
    return weighted ? add_op(id, OpKind::kDispatchGrad, ".grad", {dy, out[1], in[0], in[2]}, {in[0], in[2]})
                    : add_op(id, OpKind::kDispatchGrad, ".grad", {dy, out[1]}, {in[0]});
  }
  return weighted ? add_op(id, OpKind::kCombineGrad, ".grad", {dy, in[1], in[0], in[2]}, {in[0], in[2]})
                  : add_op(id, OpKind::kCombineGrad, ".grad", {dy, in[1]}, {in[0]});
}

void Backward::differentiate(OpId id) {
  sums_ = 0;
  // By value: adding ops moves the vector.
  const OpKind kind = graph_[id].kind;
  const std::vector<TensorId> in = graph_[id].inputs;
  const std::vector<TensorId> out = graph_[id].outputs;
  if (only_imported(kind)) {
    fail(ErrorKind::kInput, "graph {}: op {}: there is no backward of an imported {}; import the joint graph",
         graph_.name, graph_[id].name, to_string(kind));
  }
  if (kind == OpKind::kMatmul) return differentiate_matmul(id);
  if (kind == OpKind::kCrossEntropy) {
    return add_op(id, OpKind::kCrossEntropyGrad, ".grad", {in[0], in[1], out[1]}, {in[0]});
  }
  const TensorId dy = output_gradient(graph_[id], 0);
  switch (kind) {
    case OpKind::kEmbedding: return add_op(id, OpKind::kEmbeddingGrad, ".grad", {in[0], dy}, {in[1]});
    case OpKind::kAddPositions:
      contribute(in[0], dy, id);
      return add_op(id, OpKind::kAddPositionsGrad, ".grad", {dy}, {in[1]});
    case OpKind::kNorm:
      return graph_[id].attributes.weight ? add_op(id, OpKind::kNormGrad, ".grad", {in[0], in[1], dy}, in)
                                          : add_op(id, OpKind::kNormGrad, ".grad", {in[0], dy}, in);
    case OpKind::kRope: {
      std::vector<TensorId> gradients = {dy};
      for (std::size_t i = 1; i < in.size(); ++i) gradients.push_back(output_gradient(graph_[id], i));
      return add_op(id, OpKind::kRopeGrad, ".grad", gradients, in);
    }
    case OpKind::kHeadConcat: return add_op(id, OpKind::kHeadConcatGrad, ".grad", {dy}, in);
    case OpKind::kAttention: return differentiate_attention(id, dy);
    case OpKind::kRoute:
    case OpKind::kDispatch:
    case OpKind::kCombine: return differentiate_experts(id, dy);
    case OpKind::kScale: return add_op(id, OpKind::kScale, ".grad", {dy}, in);
    case OpKind::kRowGate: return add_op(id, OpKind::kRowGateGrad, ".grad", {in[0], in[1], dy}, in);
    case OpKind::kUnary: return add_op(id, OpKind::kUnaryGrad, ".grad", {in[0], dy}, in);
    case OpKind::kGated: return add_op(id, OpKind::kGatedGrad, ".grad", {in[0], in[1], dy}, in);
    case OpKind::kDropout: return add_op(id, OpKind::kDropoutGrad, ".grad", {dy, out[1]}, in);
    case OpKind::kAdd:  // Both gradients are dy itself: no op.
      contribute(in[0], dy, id);
      return contribute(in[1], dy, id);
    default: assert(false && "find_loss lets only forward ops through");
  }
}

Graph Backward::run() {
  loss_ = find_loss();
  find_needs();
  count_uses();
  for (std::size_t i = leads_.size(); i-- > 0;) {
    bool differentiable = false;
    for (const TensorId output : graph_.ops[i].outputs) {
      differentiable = differentiable || needs_[output.index()];
    }
    if (leads_[i] && differentiable) differentiate(OpId(static_cast<std::int64_t>(i)));
  }
  return std::move(graph_);
}

}  // namespace

Graph add_backward(const Graph& graph) { return Backward(graph).run(); }

}  // namespace orrery

#include "executor/device/lower_op.hpp"

#include <algorithm>
#include <cstdlib>

#include "executor/device/op_lowering.hpp"

namespace orrery::device {
namespace {

Activation activation_of(orrery::Activation activation) {
  switch (activation) {
    case orrery::Activation::kSilu: return Activation::kSilu;
    case orrery::Activation::kGelu: return Activation::kGelu;
    case orrery::Activation::kRelu: return Activation::kRelu;
    case orrery::Activation::kTanhCap: return Activation::kTanhCap;
    case orrery::Activation::kClampedSilu: return Activation::kClampedSilu;
  }
  std::abort();
}

}  // namespace

std::vector<Launch> OpLowering::lower() {
  switch (op_.kind) {
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingGrad: embedding(); break;
    case OpKind::kAddPositions:
    case OpKind::kAddPositionsGrad: positions(); break;
    case OpKind::kNorm: norm(); break;
    case OpKind::kNormGrad: norm_grad(); break;
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight: matmul(); break;
    case OpKind::kRope:
    case OpKind::kRopeGrad: rope(); break;
    case OpKind::kHeadConcat:
    case OpKind::kHeadConcatGrad: head_concat(); break;
    case OpKind::kAttention: attention(); break;
    case OpKind::kAttentionGrad: attention_grad(); break;
    case OpKind::kCrossEntropy: cross_entropy(); break;
    case OpKind::kCrossEntropyGrad: cross_entropy_grad(); break;
    case OpKind::kRoute:
    case OpKind::kRouteGrad: route(); break;
    case OpKind::kDispatch:
    case OpKind::kDispatchGrad:
    case OpKind::kCombine:
    case OpKind::kCombineGrad: experts(); break;
    default: element_by_element(); break;
  }
  return std::move(launches_);
}

// ---- Experts.

void OpLowering::route() {
  const OpAttributes& attributes = op_.attributes;
  const bool sigmoid = attributes.score == RouterScore::kSigmoid;
  const auto scale = static_cast<float>(attributes.scale);
  const std::int64_t experts = last(0), tokens = count(0) / experts;
  if (op_.kind == OpKind::kRoute) {
    const std::int64_t picks = size(out_shape(1).back());
    return emit(Route{tokens, experts, picks, attributes.groups, attributes.top_groups, sigmoid,
                      attributes.normalized, scale, in(0), in_or_none(op_.inputs.size() == 2, 1), out(0),
                      out(1)});
  }
  const std::int64_t picks = size(in_shape(1).back());
  emit(RouteGrad{tokens, experts, picks, sigmoid, attributes.normalized, scale, in(0), in(1), in(2), out(0)});
}

void OpLowering::experts() {
  const bool dispatch = op_.kind == OpKind::kDispatch || op_.kind == OpKind::kDispatchGrad;
  const bool forward = op_.kind == OpKind::kDispatch || op_.kind == OpKind::kCombine;
  // rows[experts, slots, width], wherever they stand among the operands.
  const Shape& rows =
      op_.kind == OpKind::kDispatch || op_.kind == OpKind::kCombineGrad ? out_shape(0) : in_shape(0);
  const std::int64_t experts = size(rows[0]), slots = size(rows[1]), width = size(rows[2]);
  const std::int64_t picks = size(in_shape(1).back()), tokens = count(1) / picks;
  const bool weighted = op_.inputs.size() == (forward ? 3u : 4u);
  if (dispatch && forward) {
    emit(Dispatch{tokens, width, experts, slots, picks, in(0), in(1), in_or_none(weighted, 2), out(0),
                  out(1)});
  } else if (dispatch) {
    emit(DispatchGrad{tokens, width, experts, slots, picks, in(0), in(1), in_or_none(weighted, 2),
                      in_or_none(weighted, 3), out(0), out_or_none(weighted, 1)});
  } else if (forward) {
    emit(Combine{tokens, width, experts, slots, picks, in(0), in(1), in_or_none(weighted, 2), out(0)});
  } else {
    emit(CombineGrad{tokens, width, experts, slots, picks, in(0), in(1), in_or_none(weighted, 2),
                     in_or_none(weighted, 3), out(0), out_or_none(weighted, 1)});
  }
}

// ---- Element by element.

// Gate and up are packed together or not at all, and so are their gradients.
void OpLowering::gated() {
  const OpAttributes& attributes = op_.attributes;
  const Activation activation = activation_of(attributes.activation);
  const auto limit = static_cast<float>(attributes.limit);
  const Lying gate = lying_in(0), up = lying_in(1);
  assert(gate.stride == up.stride && gate.columns == up.columns);
  if (op_.kind == OpKind::kGated) {
    return emit(
        Gated{out_count(0), activation, limit, gate.array, up.array, out(0), gate.columns, gate.stride});
  }
  const Lying dgate = lying_out(0), dup = lying_out(1);
  assert(dgate.stride == dup.stride && dgate.columns == dup.columns);
  emit(GatedGrad{out_count(0), activation, limit, gate.array, up.array, in(2), dgate.array, dup.array,
                 std::max(gate.columns, dgate.columns), gate.stride, dgate.stride});
}

void OpLowering::element_by_element() {
  const OpAttributes& attributes = op_.attributes;
  const Activation activation = activation_of(attributes.activation);
  const auto limit = static_cast<float>(attributes.limit);
  const std::int64_t n = out_count(0);
  switch (op_.kind) {
    case OpKind::kUnary: return emit(Unary{n, activation, limit, in(0), {}, out(0)});
    case OpKind::kUnaryGrad: return emit(Unary{n, activation, limit, in(0), in(1), out(0)});
    case OpKind::kGated:
    case OpKind::kGatedGrad: return gated();
    case OpKind::kScale: return emit(AddScaled{n, static_cast<float>(attributes.scale), in(0), {}, out(0)});
    case OpKind::kAdd: return emit(AddScaled{n, 1, in(0), in(1), out(0)});
    case OpKind::kRowGate: return emit(RowGate{count(0), last(1), in(0), in(1), out(0)});
    case OpKind::kRowGateGrad:
      return emit(RowGateGrad{count(0), last(1), in(0), in(1), in(2), out(0), out(1)});
    case OpKind::kDropout: {
      const Shape& x = in_shape(0);
      const auto keep = static_cast<float>(1 / (1 - attributes.rate));
      return emit(Dropout{size(x[0]),
                          size(x[1]),
                          count(0) / size(x[0]) / size(x[1]),
                          keep,
                          at(view_.positions),
                          in(0),
                          {},
                          out(0),
                          out(1)});
    }
    case OpKind::kDropoutGrad:
      return emit(DropoutGrad{n, static_cast<float>(1 / (1 - attributes.rate)), in(0), in(1), out(0)});
    default: assert(false && "every other kind has its own launch");
  }
}

// ---- What calls it.

Array array(const host::TensorView& view) { return {view.data, view.dtype}; }

std::vector<Launch> lower_op(const Graph& graph, const host::RunOp& run, const OpLoweringOptions& options) {
  return OpLowering(graph, run, options).lower();
}

std::vector<Launch> lower_loss_part(const host::RunLossPart& run) {
  const auto operand = [&](std::size_t i) { return array(run.operands[i]); };
  CrossEntropyPart part;
  part.part = run.part;
  part.first_entry = run.view.vocab_begin;
  part.tokens_of_mean = static_cast<double>(run.view.loss_tokens);
  if (run.part == 2) {
    part.tokens = run.operands[0].elements;
    part.maximum = operand(0), part.sum = operand(1), part.label_logit = operand(2);
    part.loss = operand(3), part.lse = operand(4);
    return {part};
  }
  part.tokens = run.operands[1].elements;
  part.vocab = run.operands[0].elements / part.tokens;
  part.real = real_entries(run.view, part.vocab);
  part.logits = operand(0);
  if (run.part == 0) {
    part.maximum = operand(1);
  } else {
    part.labels = operand(1), part.maximum = operand(2);
    part.sum = operand(3), part.label_logit = operand(4);
  }
  return {part};
}

std::vector<Launch> lower_ring_step(const Graph& graph, const Op& op, const host::RunRingStep& run) {
  const auto& x = run.operands;
  if (run.kind == OpKind::kAttention) {
    const std::size_t to = x.size() - (run.in_place ? 4 : 2);
    const Shape& context = graph[op.outputs[0]].shape;
    const auto size = [&](std::size_t d) { return run.view.sizes[context[d].index()]; };
    AttentionMerge merge;
    merge.batch = size(0), merge.queries = size(1), merge.heads = size(2), merge.e = size(3);
    merge.o = array(x[0]), merge.o_block = array(x[2]);
    merge.lse = reinterpret_cast<const float*>(x[1].data);
    merge.lse_block = reinterpret_cast<const float*>(x[3].data);
    merge.o_to = array(x[to]);
    merge.lse_to = reinterpret_cast<float*>(x[to + 1].data);
    return {merge};
  }
  const std::size_t to = run.in_place ? 0 : 6;
  const auto add = [&](std::size_t a, std::size_t b, std::size_t c) {
    return AddScaled{x[a].elements, 1, array(x[a]), array(x[b]), array(x[c])};
  };
  return {add(0, 1, to), add(4, 2, 4), add(5, 3, 5)};
}

}  // namespace orrery::device

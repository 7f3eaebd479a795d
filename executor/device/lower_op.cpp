#include "executor/device/lower_op.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdlib>

#include "executor/kernels/product_shape.hpp"

namespace orrery::device {
namespace {

using host::TensorView;
using Shape = std::vector<DimId>;

NormKind norm_kind(orrery::NormKind kind) {
  return kind == orrery::NormKind::kRms ? NormKind::kRms : NormKind::kLayer;
}

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

bool ascending_from_zero(const std::vector<std::int64_t>& positions) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

// How many of the local entries of the vocabulary are no padding; those are the first.
std::int64_t real_entries(const host::OpView& view, std::int64_t local) {
  if (view.vocab == 0) return local;
  return std::clamp<std::int64_t>(view.vocab - view.vocab_begin, 0, local);
}

class OpLowering {
 public:
  OpLowering(const Graph& graph, const host::RunOp& run, const OpLoweringOptions& options)
      : graph_(graph), op_(graph[run.op]), run_(run), view_(run.view), options_(options) {}

  std::vector<Launch> lower() {
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

 private:
  std::int64_t size(DimId dim) const { return view_.sizes[dim.index()]; }
  const Shape& in_shape(std::size_t i) const { return graph_[op_.inputs[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return graph_[op_.outputs[i]].shape; }
  Array in(std::size_t i) const { return array(run_.inputs[i]); }
  Array out(std::size_t i) const { return array(run_.outputs[i]); }
  // Where it really lies, and the stride of its rows; 0: dense.
  struct Lying {
    Array array;
    std::int64_t columns = 0, stride = 0;
  };
  Lying lying(const TensorView& view) const {
    if (options_.packed != nullptr) {
      const auto found = options_.packed->find(view.data);
      if (found != options_.packed->end()) {
        return {{found->second.data, view.dtype}, found->second.columns, found->second.stride};
      }
    }
    return {array(view)};
  }
  Lying lying_in(std::size_t i) const { return lying(run_.inputs[i]); }
  Lying lying_out(std::size_t i) const { return lying(run_.outputs[i]); }
  Array in_or_none(bool there, std::size_t i) const { return there ? in(i) : Array(); }
  Array out_or_none(bool there, std::size_t i) const { return there ? out(i) : Array(); }
  std::int64_t count(std::size_t input) const { return run_.inputs[input].elements; }
  std::int64_t out_count(std::size_t output) const { return run_.outputs[output].elements; }
  std::int64_t last(std::size_t input) const { return size(in_shape(input).back()); }
  bool adds_into(std::size_t output) const {
    return graph_[op_.outputs[output]].kind == TensorKind::kParameterGradient;
  }
  template <class Kind>
  void emit(Kind launch) {
    launches_.emplace_back(std::move(launch));
  }
  const std::int64_t* at(const std::vector<std::int64_t>& positions) const {
    return ascending_from_zero(positions) ? nullptr : options_.positions(positions);
  }

  void embedding();
  void positions();
  void norm();
  void norm_grad();
  void rope();
  void head_concat();
  void matmul();
  void product(const Lying& first, const Shape& first_shape, const Lying& second, const Shape& second_shape,
               const Lying& result, const Shape& result_shape, const Array& bias, bool accumulate);
  bool batched_bias(std::size_t output, const Shape& bias_shape) const;
  void bias_gradient(std::size_t input, std::size_t output);
  AttentionShape attention_shape() const;
  template <class Kind>
  void take_heads(Kind& attention) const {
    const Lying q = lying_in(0), k = lying_in(1), v = lying_in(2);
    attention.q = q.array, attention.k = k.array, attention.v = v.array;
    HeadStrides& strides = attention.shape.strides;
    strides.q = q.stride, strides.k = k.stride, strides.v = v.stride;
  }
  void attention();
  void attention_grad();
  void cross_entropy();
  void cross_entropy_grad();
  void route();
  void experts();
  void element_by_element();
  void gated();

  const Graph& graph_;
  const Op& op_;
  const host::RunOp& run_;
  const host::OpView& view_;
  const OpLoweringOptions& options_;
  std::vector<Launch> launches_;
};

// ---- Rows.

void OpLowering::embedding() {
  if (op_.kind == OpKind::kEmbedding) {
    const std::int64_t width = size(out_shape(0).back());
    return emit(Embedding{count(0), width, count(1) / width, view_.vocab_begin, in(0), in(1), out(0)});
  }
  const std::int64_t width = last(1);
  emit(EmbeddingGrad{count(0), width, out_count(0) / width, view_.vocab_begin, in(0), in(1), out(0)});
}

void OpLowering::positions() {
  const Shape& x = in_shape(0);
  const std::int64_t batch = size(x[0]), sequence = size(x[1]), width = size(x.back());
  if (op_.kind == OpKind::kAddPositions) {
    return emit(AddPositions{batch, sequence, width, at(view_.positions), in(0), in(1), out(0)});
  }
  emit(AddPositionsGrad{batch, sequence, width, at(view_.positions), in(0), out(0)});
}

void OpLowering::norm() {
  const OpAttributes& attributes = op_.attributes;
  Norm norm;
  norm.kind = norm_kind(attributes.norm);
  norm.width = attributes.weight ? count(1) : last(0);
  norm.rows = count(0) / norm.width;
  norm.epsilon = static_cast<float>(attributes.epsilon);
  norm.x = in(0);
  norm.weight = in_or_none(attributes.weight, 1);
  norm.bias = in_or_none(attributes.bias, 2);
  norm.y = out(0);
  emit(norm);
}

void OpLowering::norm_grad() {
  const OpAttributes& attributes = op_.attributes;
  NormGrad norm;
  norm.kind = norm_kind(attributes.norm);
  norm.width = attributes.weight ? count(1) : last(0);
  norm.rows = count(0) / norm.width;
  norm.epsilon = static_cast<float>(attributes.epsilon);
  norm.x = in(0);
  norm.weight = in_or_none(attributes.weight, 1);
  norm.dy = in(attributes.weight ? 2 : 1);
  norm.dx = out(0);
  norm.dweight = out_or_none(attributes.weight, 1);
  norm.dbias = out_or_none(attributes.bias, 2);
  norm.accumulate = attributes.weight && adds_into(1);
  emit(norm);
}

void OpLowering::rope() {
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
    const Shape& shape = in_shape(i);
    Rope rope;
    rope.batch = size(shape[0]), rope.sequence = size(shape[1]);
    rope.heads = size(shape[2]), rope.width = size(shape[3]);
    rope.rotated = std::llround(op_.attributes.rotary_fraction * static_cast<double>(rope.width)) / 2 * 2;
    rope.theta = op_.attributes.rope_theta;
    rope.back = op_.kind == OpKind::kRopeGrad;
    rope.positions = at(view_.positions);
    const Lying x = lying_in(i), y = lying_out(i);
    rope.x = x.array, rope.y = y.array;
    rope.x_stride = x.stride, rope.y_stride = y.stride;
    emit(rope);
  }
}

void OpLowering::head_concat() {
  HeadConcat concat;
  concat.back = op_.kind == OpKind::kHeadConcatGrad;
  const Shape& x = concat.back ? out_shape(0) : in_shape(0);
  const Shape& y = concat.back ? out_shape(1) : in_shape(1);
  concat.tokens = size(x[0]) * size(x[1]);
  concat.heads = size(x[2]), concat.shared = size(y[2]);
  concat.c = size(x[3]), concat.e = size(y[3]);
  concat.x = concat.back ? out(0) : in(0);
  concat.y = concat.back ? out(1) : in(1);
  concat.z = concat.back ? in(0) : out(0);
  emit(concat);
}

// ---- Products.

void OpLowering::matmul() {
  const bool bias = op_.attributes.bias;
  if (op_.kind == OpKind::kMatmul) {
    const std::size_t n = op_.outputs.size();
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t b = 1 + n + i;
      const bool has_bias = bias && run_.inputs[b].data != nullptr;
      product(lying_in(0), in_shape(0), lying_in(1 + i), in_shape(1 + i), lying_out(i), out_shape(i),
              in_or_none(has_bias, b), false);
    }
  } else if (op_.kind == OpKind::kMatmulGradInput) {
    const std::size_t n = op_.inputs.size() / 2;
    for (std::size_t i = 0; i < n; ++i) {
      product(lying_in(i), in_shape(i), lying_in(n + i), in_shape(n + i), lying_out(0), out_shape(0), {},
              i > 0);
    }
  } else {
    const std::size_t n = op_.inputs.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
      product(lying_in(0), in_shape(0), lying_in(1 + i), in_shape(1 + i), lying_out(i), out_shape(i), {},
              adds_into(i));
    }
    for (std::size_t i = 0; bias && i < n; ++i) bias_gradient(1 + i, n + i);
  }
}

// One stride of a group is 1: the other is how far its rows stand apart.
Matrix matrix(const Array& array, std::size_t row_stride, std::size_t column_stride,
              std::size_t batch_stride) {
  assert(row_stride == 1 || column_stride == 1);
  const bool turned = column_stride != 1;
  return {array, static_cast<std::int64_t>(turned ? column_stride : row_stride),
          static_cast<std::int64_t>(batch_stride), turned};
}

void OpLowering::product(const Lying& first, const Shape& first_shape, const Lying& second,
                         const Shape& second_shape, const Lying& result, const Shape& result_shape,
                         const Array& bias, bool accumulate) {
  auto [batch, m, n, k] = host::product_shape(view_.sizes, first_shape, second_shape, result_shape);
  // Packed, rows stand further apart; what goes along them stays.
  const Lying* const operands[3] = {&first, &second, &result};
  for (std::size_t t = 0; t < 3; ++t) {
    if (operands[t]->stride == 0) continue;
    const auto columns = static_cast<std::size_t>(operands[t]->columns);
    for (host::ProductGroup* const group : {&m, &n, &k}) {
      std::size_t& stride = group->strides[t];
      if (stride >= columns) stride = stride / columns * static_cast<std::size_t>(operands[t]->stride);
    }
  }
  Gemm gemm;
  gemm.batch = static_cast<std::int64_t>(batch.size);
  gemm.k = static_cast<std::int64_t>(k.size);
  gemm.accumulate = accumulate;
  // Rows of the result are contiguous along n; where they are along m, its transpose is made.
  const bool turned = m.strides[2] == 1 && m.size > 1;
  const std::size_t step[3] = {batch.strides[0], batch.strides[1], batch.strides[2]};
  gemm.m = static_cast<std::int64_t>(turned ? n.size : m.size);
  gemm.n = static_cast<std::int64_t>(turned ? m.size : n.size);
  if (turned) {
    gemm.a = matrix(second.array, n.strides[1], k.strides[1], step[1]);
    gemm.b = matrix(first.array, k.strides[0], m.strides[0], step[0]);
    gemm.d = matrix(result.array, n.strides[2], 1, step[2]);
  } else {
    gemm.a = matrix(first.array, m.strides[0], k.strides[0], step[0]);
    gemm.b = matrix(second.array, k.strides[1], n.strides[1], step[1]);
    gemm.d = matrix(result.array, m.strides[2], 1, step[2]);
  }
  if (gemm.batch == 1) gemm.a.batch_stride = gemm.b.batch_stride = gemm.d.batch_stride = 0;
  if (!bias) return emit(gemm);
  const std::int64_t width = size_bytes(bias.dtype);
  if (gemm.batch == 1) {
    gemm.bias = bias;
    return emit(gemm);
  }
  // A bias of each product of the batch.
  const std::int64_t products = gemm.batch;
  gemm.batch = 1;
  for (std::int64_t i = 0; i < products; ++i) {
    Gemm one = gemm;
    one.a.array.data += i * gemm.a.batch_stride * size_bytes(gemm.a.array.dtype);
    one.b.array.data += i * gemm.b.batch_stride * size_bytes(gemm.b.array.dtype);
    one.d.array.data += i * gemm.d.batch_stride * size_bytes(gemm.d.array.dtype);
    one.a.batch_stride = one.b.batch_stride = one.d.batch_stride = 0;
    one.bias = {bias.data + i * gemm.n * width, bias.dtype};
    emit(one);
  }
}

void OpLowering::bias_gradient(std::size_t input, std::size_t output) {
  const Shape& bias = out_shape(output);
  const bool batched = !bias.empty() && bias[0] == in_shape(input)[0];
  const std::int64_t batch = batched ? size(bias[0]) : 1;
  const Lying x = lying_in(input);
  ColumnSum sum;
  sum.x_stride = x.stride;
  sum.width = out_count(output) / batch;
  sum.rows = count(input) / sum.width / batch;
  sum.accumulate = adds_into(output);
  for (std::int64_t i = 0; i < batch; ++i) {
    sum.x = x.array, sum.to = out(output);
    sum.x.data += i * sum.rows * sum.width * size_bytes(sum.x.dtype);
    sum.to.data += i * sum.width * size_bytes(sum.to.dtype);
    emit(sum);
  }
}

// ---- Attention.

AttentionShape OpLowering::attention_shape() const {
  const OpAttributes& attributes = op_.attributes;
  const Shape& q = in_shape(0);
  AttentionShape shape;
  shape.batch = size(q[0]), shape.queries = size(q[1]);
  shape.heads = size(q[2]), shape.d = size(q[3]);
  const bool own_keys = view_.key_positions.empty() || view_.key_positions == view_.positions;
  shape.keys = own_keys ? shape.queries : std::ssize(view_.key_positions);
  shape.kv_heads = size(in_shape(1)[2]), shape.e = size(in_shape(2)[3]);
  shape.scale = static_cast<float>(attributes.score_scale > 0 ? attributes.score_scale
                                                              : 1 / std::sqrt(static_cast<double>(shape.d)));
  shape.causal = attributes.causal;
  // What reaches over the whole sequence limits nothing.
  const std::int64_t sequence = shape.keys;
  const bool from_zero = ascending_from_zero(view_.positions);
  shape.window = from_zero && own_keys && attributes.window >= sequence ? 0 : attributes.window;
  shape.chunk = from_zero && own_keys && attributes.chunk >= sequence ? 0 : attributes.chunk;
  shape.softcap = static_cast<float>(attributes.softcap);
  shape.positions = at(view_.positions);
  shape.key_positions = own_keys ? shape.positions : options_.positions(view_.key_positions);
  return shape;
}

void OpLowering::attention() {
  Attention attention;
  attention.shape = attention_shape();
  take_heads(attention);
  attention.sink = in_or_none(op_.inputs.size() == 4 && view_.first_keys, 3);
  attention.o = out(0);
  assert(out(1).dtype == DType::kFp32);
  attention.lse = reinterpret_cast<float*>(out(1).data);
  emit(attention);
}

void OpLowering::attention_grad() {
  const std::size_t operands = op_.inputs.size() - 3;
  const bool sink = operands == 4 && view_.first_keys;
  AttentionGrad attention;
  attention.shape = attention_shape();
  take_heads(attention);
  attention.sink = in_or_none(sink, 3);
  attention.o = in(operands);
  attention.lse = reinterpret_cast<const float*>(in(operands + 1).data);
  attention.dout = in(operands + 2);
  const Lying dq = lying_out(0), dk = lying_out(1), dv = lying_out(2);
  attention.dq = dq.array, attention.dk = dk.array, attention.dv = dv.array;
  HeadStrides& strides = attention.shape.strides;
  strides.dq = dq.stride, strides.dk = dk.stride, strides.dv = dv.stride;
  attention.dsink = out_or_none(sink, 3);
  attention.deterministic = options_.deterministic;
  emit(attention);
}

// ---- Loss.

void OpLowering::cross_entropy() {
  const std::int64_t vocab = last(0), tokens = count(1);
  const double all = static_cast<double>(view_.loss_tokens > 0 ? view_.loss_tokens : tokens);
  emit(CrossEntropy{tokens,
                    vocab,
                    real_entries(view_, vocab),
                    view_.vocab_begin,
                    all,
                    in(0),
                    in(1),
                    out(0),
                    reinterpret_cast<float*>(out(1).data),
                    {}});
}

void OpLowering::cross_entropy_grad() {
  const std::int64_t vocab = last(0), tokens = count(1);
  const double all = static_cast<double>(view_.loss_tokens > 0 ? view_.loss_tokens : tokens);
  emit(CrossEntropyGrad{tokens, vocab, real_entries(view_, vocab), view_.vocab_begin, all, in(0), in(1),
                        reinterpret_cast<const float*>(in(2).data), out(0)});
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

}  // namespace

Array array(const TensorView& view) { return {view.data, view.dtype}; }

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

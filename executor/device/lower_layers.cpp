#include <algorithm>
#include <cassert>
#include <cmath>

#include "executor/device/op_lowering.hpp"

namespace orrery::device {
namespace {

NormKind norm_kind(orrery::NormKind kind) {
  return kind == orrery::NormKind::kRms ? NormKind::kRms : NormKind::kLayer;
}

bool ascending_from_zero(const std::vector<std::int64_t>& positions) {
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

}  // namespace

// How many of the local entries of the vocabulary are no padding; those are the first.
std::int64_t real_entries(const host::OpView& view, std::int64_t local) {
  if (view.vocab == 0) return local;
  return std::clamp<std::int64_t>(view.vocab - view.vocab_begin, 0, local);
}

const std::int64_t* OpLowering::at(const std::vector<std::int64_t>& positions) const {
  return ascending_from_zero(positions) ? nullptr : options_.positions(positions);
}

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

// What a norm and its gradient have alike.
template <class Kind>
Kind OpLowering::norm_rows() const {
  const OpAttributes& attributes = op_.attributes;
  Kind norm;
  norm.kind = norm_kind(attributes.norm);
  norm.width = attributes.weight ? count(1) : last(0);
  norm.rows = count(0) / norm.width;
  norm.epsilon = static_cast<float>(attributes.epsilon);
  norm.x = in(0);
  norm.weight = in_or_none(attributes.weight, 1);
  return norm;
}

void OpLowering::norm() {
  const OpAttributes& attributes = op_.attributes;
  auto norm = norm_rows<Norm>();
  norm.bias = in_or_none(attributes.bias, 2);
  norm.y = out(0);
  emit(norm);
}

void OpLowering::norm_grad() {
  const OpAttributes& attributes = op_.attributes;
  auto norm = norm_rows<NormGrad>();
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

}  // namespace orrery::device

// Views to floats and back, and which loops an op takes.

#include "executor/kernels/kernels.hpp"

#include <algorithm>
#include <cstring>

#include "executor/kernels/convert.hpp"
#include "executor/kernels/kernel_op.hpp"

namespace orrery::host {
namespace {

template <typename T, typename To>
void copy_whole(const std::byte* from, To* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    T x;
    std::memcpy(&x, from + i * sizeof(T), sizeof(T));
    to[i] = static_cast<To>(x);
  }
}

template <typename To>
void read_whole(const TensorView& view, To* to) {
  const auto n = static_cast<std::size_t>(view.elements);
  if (view.dtype == DType::kInt64) return copy_whole<std::int64_t>(view.data, to, n);
  if (view.dtype == DType::kInt32) return copy_whole<std::int32_t>(view.data, to, n);
  copy_whole<std::uint8_t>(view.data, to, n);
}

template <typename T>
void write_as(const float* from, std::byte* to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const T x = static_cast<T>(from[i]);
    std::memcpy(to + i * sizeof(T), &x, sizeof(T));
  }
}

bool is_fp32(const TensorView& view) { return view.dtype == DType::kFp32 || view.dtype == DType::kTf32; }

bool is_gradient(const Tensor& tensor) {
  return tensor.kind == TensorKind::kGradient || tensor.kind == TensorKind::kParameterGradient;
}

}  // namespace

bool is_whole(DType type) { return type == DType::kInt64 || type == DType::kInt32 || type == DType::kUint8; }

void read_floats(const TensorView& view, bool gradient, float* to) {
  if (is_whole(view.dtype)) return read_whole(view, to);
  decode(format_of(view.dtype, gradient), view.data, to, static_cast<std::size_t>(view.elements));
}

// Whole numbers are masks, picks and places, which floats hold exactly up to 2²⁴.
void write_floats(const float* from, bool gradient, const TensorView& view) {
  const auto n = static_cast<std::size_t>(view.elements);
  switch (view.dtype) {
    case DType::kInt64: return write_as<std::int64_t>(from, view.data, n);
    case DType::kInt32: return write_as<std::int32_t>(from, view.data, n);
    case DType::kUint8: return write_as<std::uint8_t>(from, view.data, n);
    default: encode(format_of(view.dtype, gradient), from, view.data, n);
  }
}

KernelOp::KernelOp(const Graph& graph, const Op& op, const OpView& view, std::span<const TensorView> inputs,
                   std::span<const TensorView> outputs, Workspace& workspace)
    : graph_(graph),
      op_(op),
      view_(view),
      input_views_(inputs),
      output_views_(outputs),
      workspace_(workspace),
      scratch_(workspace),
      loop_(loops(workspace.isa)) {
  assert(inputs.size() == op.inputs.size() && outputs.size() == op.outputs.size());
  inputs_ = scratch_.take<const float*>(inputs.size());
  outputs_ = scratch_.take<float*>(outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // Ids are read where they are needed.
    const bool ids_only = is_whole(inputs[i].dtype) && inputs[i].dtype != DType::kUint8;
    inputs_[i] = ids_only || !has_data(i) ? nullptr : read(inputs[i], is_gradient(graph[op.inputs[i]]));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (is_fp32(outputs[i])) {
      outputs_[i] = reinterpret_cast<float*>(outputs[i].data);
      continue;
    }
    outputs_[i] = scratch_.take<float>(out_count(i));
    if (adds_into(i)) read_floats(outputs[i], true, outputs_[i]);
  }
}

const float* KernelOp::read(const TensorView& view, bool gradient) {
  if (is_fp32(view)) return reinterpret_cast<const float*>(view.data);
  float* copy = scratch_.take<float>(static_cast<std::size_t>(view.elements));
  read_floats(view, gradient, copy);
  return copy;
}

const std::int64_t* KernelOp::ids(std::size_t input) {
  assert(is_whole(input_views_[input].dtype));
  std::int64_t* copy = scratch_.take<std::int64_t>(count(input));
  read_whole(input_views_[input], copy);
  return copy;
}

float* KernelOp::cleared(std::size_t output) {
  if (!adds_into(output)) std::fill_n(out(output), out_count(output), 0.0f);
  return out(output);
}

void KernelOp::finish() {
  for (std::size_t i = 0; i < output_views_.size(); ++i) {
    if (!is_fp32(output_views_[i]))
      write_floats(out(i), is_gradient(graph_[op_.outputs[i]]), output_views_[i]);
  }
}

std::size_t KernelOp::real_entries(std::size_t local) const {
  if (view_.vocab == 0) return local;
  const std::int64_t real = std::max<std::int64_t>(view_.vocab - view_.vocab_begin, 0);
  return std::min(local, static_cast<std::size_t>(real));
}

void KernelOp::run() {
  switch (op_.kind) {
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingGrad: return embedding();
    case OpKind::kAddPositions:
    case OpKind::kAddPositionsGrad: return positions();
    case OpKind::kNorm: return norm();
    case OpKind::kNormGrad: return norm_grad();
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight: return matmul();
    case OpKind::kRope: return rope(1);
    case OpKind::kRopeGrad: return rope(-1);
    case OpKind::kHeadConcat:
    case OpKind::kHeadConcatGrad: return head_concat();
    case OpKind::kAttention: return attention();
    case OpKind::kAttentionGrad: return attention_grad();
    case OpKind::kRowGate:
    case OpKind::kRowGateGrad: return row_gate();
    case OpKind::kDropout: return dropout();
    case OpKind::kRoute: return route();
    case OpKind::kRouteGrad: return route_grad();
    case OpKind::kDispatch: return dispatch();
    case OpKind::kDispatchGrad: return dispatch_grad();
    case OpKind::kCombine: return combine();
    case OpKind::kCombineGrad: return combine_grad();
    case OpKind::kCrossEntropy: return cross_entropy();
    case OpKind::kCrossEntropyGrad: return cross_entropy_grad();
    default: return elementwise();
  }
}

void run_kernel(const Graph& graph, const Op& op, const OpView& view, std::span<const TensorView> inputs,
                std::span<const TensorView> outputs, Workspace& workspace) {
  assert(op.phase != Phase::kOptimizer && !only_imported(op.kind));
  KernelOp kernel(graph, op, view, inputs, outputs, workspace);
  kernel.run();
  kernel.finish();
}

void convert(const TensorView& from, const TensorView& to, Workspace& workspace) {
  assert(from.elements == to.elements);
  Scratch scratch(workspace);
  float* values = scratch.take<float>(static_cast<std::size_t>(from.elements));
  read_floats(from, false, values);
  write_floats(values, false, to);
}

void accumulate(const TensorView& from, const TensorView& to, Workspace& workspace) {
  assert(from.elements == to.elements);
  Scratch scratch(workspace);
  const auto n = static_cast<std::size_t>(from.elements);
  const auto floats = [&](const TensorView& view) {
    if (is_fp32(view)) return reinterpret_cast<float*>(view.data);
    float* values = scratch.take<float>(n);
    read_floats(view, true, values);
    return values;
  };
  const float* more = floats(from);
  float* sum = floats(to);
  loops(workspace.isa).add(sum, more, sum, n);
  if (!is_fp32(to)) write_floats(sum, true, to);
}

}  // namespace orrery::host

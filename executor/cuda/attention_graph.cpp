#include "executor/cuda/attention_graph.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"

namespace orrery::cuda {
namespace {

using Four = std::array<std::int64_t, 4>;

Four packed(const Four& size) { return {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1}; }
Four turned(const Four& x) { return {x[0], x[1], x[3], x[2]}; }

// An operand or something between operations; its descriptor is the builder's.
struct Tensor {
  cudnnBackendDescriptor_t raw = nullptr;
  Four size{};
};

// Operations and what they need, kept until the graph is finalized. Arithmetic is fp32.
class GraphBuilder {
 public:
  explicit GraphBuilder(const Cudnn& library) : library_(library) {}

  Tensor array(AttentionOperand operand, const Four& size, const Four& strides, cudnnDataType_t type) {
    return tensor(static_cast<std::int64_t>(operand), size, strides, type, false, false);
  }
  Tensor number(AttentionOperand operand) {
    return tensor(static_cast<std::int64_t>(operand), {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false,
                  true);
  }
  // Never written to memory, if an engine can help it.
  Tensor between(const Four& size, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return between(size, packed(size), type);
  }
  Tensor between(const Four& size, const Four& strides, cudnnDataType_t type) {
    return tensor(next_++, size, strides, type, true, false);
  }

  Tensor product(const Tensor& a, const Tensor& b, const Tensor& to);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* y, const Tensor& to,
                   cudnnDataType_t arithmetic = CUDNN_DATA_FLOAT, int axis = -1,
                   const Tensor* condition = nullptr);
  Tensor reduction(cudnnReduceTensorOp_t by, const Tensor& x, const Tensor& to);
  Tensor reshape(const Tensor& x, const Tensor& to);
  // Minus infinity where a key comes after the query.
  Tensor causal(const Tensor& scores, const Tensor& minus_infinity);

  Descriptor finish(cudnnHandle_t handle);

 private:
  Tensor tensor(std::int64_t id, const Four& size, const Four& strides, cudnnDataType_t type, bool is_virtual,
                bool by_value);
  Descriptor& keep(cudnnBackendDescriptorType_t type) { return kept_.emplace_back(library_, type); }

  const Cudnn& library_;
  std::vector<Descriptor> kept_, operations_;
  std::int64_t next_ = 1000;
};

Tensor GraphBuilder::tensor(std::int64_t id, const Four& size, const Four& strides, cudnnDataType_t type,
                            bool is_virtual, bool by_value) {
  constexpr std::int64_t kAlignment = 16;
  Descriptor& made = keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, size.data(), size.size())
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), strides.size())
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value)
      .finalize("describe a tensor of attention");
  return {made.raw(), size};
}

Tensor GraphBuilder::product(const Tensor& a, const Tensor& b, const Tensor& to) {
  Descriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT).finalize("describe a product");
  Descriptor operation(library_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.link(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.raw)
      .link(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.raw)
      .link(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.raw)
      .link(CUDNN_ATTR_OPERATION_MATMUL_DESC, how.raw())
      .finalize("add a product to attention");
  operations_.push_back(std::move(operation));
  return to;
}

Tensor GraphBuilder::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* y, const Tensor& to,
                               cudnnDataType_t arithmetic, int axis, const Tensor* condition) {
  Descriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, arithmetic);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(axis));
  how.finalize("describe a pointwise operation");
  Descriptor operation(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how.raw())
      .link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.raw);
  if (y != nullptr) operation.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, y->raw);
  if (condition != nullptr) operation.link(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition->raw);
  operation.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.raw)
      .finalize("add a pointwise operation to attention");
  operations_.push_back(std::move(operation));
  return to;
}

Tensor GraphBuilder::reduction(cudnnReduceTensorOp_t by, const Tensor& x, const Tensor& to) {
  Descriptor& how = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, by)
      .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .finalize("describe a reduction");
  Descriptor operation(library_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.link(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.raw)
      .link(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.raw)
      .link(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how.raw())
      .finalize("add a reduction to attention");
  operations_.push_back(std::move(operation));
  return to;
}

Tensor GraphBuilder::reshape(const Tensor& x, const Tensor& to) {
  Descriptor operation(library_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.link(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.raw)
      .link(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.raw)
      .finalize("add a reshape to attention");
  operations_.push_back(std::move(operation));
  return to;
}

Tensor GraphBuilder::causal(const Tensor& scores, const Tensor& minus_infinity) {
  const auto index = [&](int axis) {
    return pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, between(scores.size, CUDNN_DATA_INT32),
                     CUDNN_DATA_FLOAT, axis);
  };
  const Tensor query = index(2), key = index(3);
  const Tensor seen = pointwise(CUDNN_POINTWISE_CMP_GE, query, &key, between(scores.size, CUDNN_DATA_BOOLEAN),
                                CUDNN_DATA_BOOLEAN);
  return pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, &minus_infinity, between(scores.size),
                   CUDNN_DATA_FLOAT, -1, &seen);
}

Descriptor GraphBuilder::finish(cudnnHandle_t handle) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& operation : operations_) raw.push_back(operation.raw());
  Descriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), raw.size());
  if (handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.finalize("make a graph of attention");
  return graph;
}

// The arrays of a form in cuDNN's terms.
struct Arrays {
  explicit Arrays(const AttentionForm& form)
      : type(form.dtype == DType::kFp16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16),
        b(form.shape.batch),
        s(form.shape.queries),
        heads(form.shape.heads),
        kv_heads(form.shape.kv_heads),
        d(form.shape.d),
        e(form.shape.e),
        tokens(form.shape.strides) {}

  Four q() const { return {b, heads, s, d}; }
  Four k() const { return {b, kv_heads, s, d}; }
  Four v() const { return {b, kv_heads, s, e}; }
  Four o() const { return {b, heads, s, e}; }
  Four row() const { return {b, heads, s, 1}; }
  Four scores() const { return {b, heads, s, s}; }
  // As they lie: [b, s, heads, width].
  static Four strides(const Four& size) {
    return {size[1] * size[2] * size[3], size[3], size[1] * size[3], 1};
  }

  // With tokens so far apart; 0: as above.
  static Four strides(const Four& size, std::int64_t token) {
    if (token == 0) return strides(size);
    return {size[2] * token, size[3], token, 1};
  }

  cudnnDataType_t type;
  std::int64_t b, s, heads, kv_heads, d, e;
  device::HeadStrides tokens;
};

// softmax(scale · q · kᵀ) · v, and the logarithms of the softmax' denominators.
void add_forward(GraphBuilder& graph, const AttentionForm& form) {
  using enum AttentionOperand;
  const Arrays x(form);
  const Tensor q = graph.array(kQ, x.q(), Arrays::strides(x.q(), x.tokens.q), x.type);
  const Tensor k_turned = graph.array(kK, turned(x.k()), turned(Arrays::strides(x.k(), x.tokens.k)), x.type);
  const Tensor v = graph.array(kV, x.v(), Arrays::strides(x.v(), x.tokens.v), x.type);
  const Tensor o = graph.array(kO, x.o(), Arrays::strides(x.o()), x.type);
  const Tensor stats = graph.array(kStats, x.row(), packed(x.row()), CUDNN_DATA_FLOAT);
  const Tensor scale = graph.number(kScale);

  const Tensor products = graph.product(q, k_turned, graph.between(x.scores()));
  Tensor scores = graph.pointwise(CUDNN_POINTWISE_MUL, products, &scale, graph.between(x.scores()));
  if (form.shape.causal) scores = graph.causal(scores, graph.number(kMinusInfinity));
  const Tensor largest = graph.reduction(CUDNN_REDUCE_TENSOR_MAX, scores, graph.between(x.row()));
  const Tensor below = graph.pointwise(CUDNN_POINTWISE_SUB, scores, &largest, graph.between(x.scores()));
  const Tensor powers = graph.pointwise(CUDNN_POINTWISE_EXP, below, nullptr, graph.between(x.scores()));
  const Tensor sum = graph.reduction(CUDNN_REDUCE_TENSOR_ADD, powers, graph.between(x.row()));
  const Tensor log = graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, graph.between(x.row()));
  graph.pointwise(CUDNN_POINTWISE_ADD, largest, &log, stats);
  const Tensor p = graph.pointwise(CUDNN_POINTWISE_DIV, powers, &sum, graph.between(x.scores(), x.type));
  graph.product(p, v, o);
}

// A gradient of keys or values: of several query heads for each of theirs it is their sum.
void add_to_keys(GraphBuilder& graph, const Arrays& x, const Tensor& left, const Tensor& right,
                 const Tensor& to) {
  if (x.heads == x.kv_heads) {
    graph.product(left, right, to);
  } else {
    const Tensor by_head =
        graph.product(left, right, graph.between({x.b, x.heads, x.s, right.size[3]}, x.type));
    graph.reduction(CUDNN_REDUCE_TENSOR_ADD, by_head, to);
  }
}

// P again from the scores and the denominators; dV = Pᵀ·dO; dS = P ∘ (dO·Vᵀ − rowsum(dO ∘ O)) · scale; dK =
// dSᵀ·Q; dQ = dS·K.
void add_backward(GraphBuilder& graph, const AttentionForm& form) {
  using enum AttentionOperand;
  const Arrays x(form);
  const Tensor q = graph.array(kQ, x.q(), Arrays::strides(x.q(), x.tokens.q), x.type);
  const Tensor k_turned = graph.array(kK, turned(x.k()), turned(Arrays::strides(x.k(), x.tokens.k)), x.type);
  const Tensor v_turned = graph.array(kV, turned(x.v()), turned(Arrays::strides(x.v(), x.tokens.v)), x.type);
  const Tensor o = graph.array(kO, x.o(), Arrays::strides(x.o()), x.type);
  const Tensor dout = graph.array(kDo, x.o(), Arrays::strides(x.o()), x.type);
  const Tensor stats = graph.array(kStats, x.row(), packed(x.row()), CUDNN_DATA_FLOAT);
  const Tensor dq = graph.array(kDq, x.q(), Arrays::strides(x.q(), x.tokens.dq), x.type);
  const Tensor dk = graph.array(kDk, x.k(), Arrays::strides(x.k(), x.tokens.dk), x.type);
  const Tensor dv = graph.array(kDv, x.v(), Arrays::strides(x.v(), x.tokens.dv), x.type);
  const Tensor row_sum = graph.array(kRowSum, x.row(), packed(x.row()), CUDNN_DATA_FLOAT);
  const Tensor scale = graph.number(kScale), one = graph.number(kOne);

  const Four product_strides{x.heads * x.s * x.e, x.s * x.e, x.heads * x.e, 1};
  const Tensor both =
      graph.pointwise(CUDNN_POINTWISE_MUL, dout, &o, graph.between(x.o(), product_strides, CUDNN_DATA_FLOAT));
  const Tensor sum = graph.reduction(CUDNN_REDUCE_TENSOR_ADD, both, graph.between(x.row()));
  graph.pointwise(CUDNN_POINTWISE_MUL, sum, &one, row_sum);

  const Tensor products = graph.product(q, k_turned, graph.between(x.scores()));
  const Tensor scores = graph.pointwise(CUDNN_POINTWISE_MUL, products, &scale, graph.between(x.scores()));
  Tensor logs = graph.pointwise(CUDNN_POINTWISE_SUB, scores, &stats, graph.between(x.scores()));
  if (form.shape.causal) logs = graph.causal(logs, graph.number(kMinusInfinity));
  const Tensor p = graph.pointwise(CUDNN_POINTWISE_EXP, logs, nullptr, graph.between(x.scores()));
  const Four turned_strides{x.heads * x.s * x.s, x.s * x.s, 1, x.s};
  const auto turn = [&](const Tensor& of) {
    return graph.reshape(of, graph.between(turned(x.scores()), turned_strides, x.type));
  };
  add_to_keys(graph, x, turn(p), dout, dv);

  const Tensor dp = graph.product(dout, v_turned, graph.between(x.scores()));
  const Tensor centred = graph.pointwise(CUDNN_POINTWISE_SUB, dp, &row_sum, graph.between(x.scores()));
  const Tensor weighted = graph.pointwise(CUDNN_POINTWISE_MUL, centred, &p, graph.between(x.scores()));
  const Tensor ds = graph.pointwise(CUDNN_POINTWISE_MUL, weighted, &scale, graph.between(x.scores(), x.type));
  add_to_keys(graph, x, turn(ds), q, dk);

  const Tensor k = graph.reshape(k_turned, graph.between(x.k(), Arrays::strides(x.k(), x.tokens.k), x.type));
  if (form.pass == AttentionPass::kBackwardDeterministic) {
    graph.product(ds, k, dq);
  } else {
    const Tensor dq_sum = graph.array(kDqSum, x.q(), packed(x.q()), CUDNN_DATA_FLOAT);
    graph.product(ds, k, dq_sum);
    graph.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, nullptr, dq);
  }
}

}  // namespace

std::string describe(const AttentionForm& form) {
  const device::AttentionShape& x = form.shape;
  const char* const pass = form.pass == AttentionPass::kForward    ? "forward"
                           : form.pass == AttentionPass::kBackward ? "backward"
                                                                   : "backward in order";
  std::string text =
      fmt::format("attention {} {} b{} s{} heads {}/{} d{} e{}{}", pass, to_string(form.dtype), x.batch,
                  x.queries, x.heads, x.kv_heads, x.d, x.e, x.causal ? " causal" : "");
  const device::HeadStrides& at = x.strides;
  if (at != device::HeadStrides{})
    text += fmt::format(" tokens at {} {} {} {} {} {}", at.q, at.k, at.v, at.dq, at.dk, at.dv);
  return text;
}

Descriptor attention_graph(const Cudnn& library, cudnnHandle_t handle, const AttentionForm& form) {
  GraphBuilder graph(library);
  if (form.pass == AttentionPass::kForward) {
    add_forward(graph, form);
  } else {
    add_backward(graph, form);
  }
  return graph.finish(handle);
}

std::vector<Descriptor> attention_engines(const Cudnn& library, const Descriptor& graph,
                                          const Descriptor* device) {
  Descriptor heuristic(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.raw())
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (device != nullptr) heuristic.link(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device->raw());
  heuristic.finalize("find an engine for attention");
  return heuristic.get_all(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

std::int64_t engine_number(const Descriptor& configuration) {
  const std::vector<Descriptor> engines =
      configuration.get_all(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  if (engines.empty()) return -1;
  return engines.front().get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
}

std::size_t check_engines(const Cudnn& library, const std::string& device_json, const AttentionForm& form) {
  Descriptor device(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device_json.data(), device_json.size())
      .finalize("read the description of a GPU");
  const Descriptor graph = attention_graph(library, nullptr, form);
  return attention_engines(library, graph, &device).size();
}

std::string dump_device_json(const Cudnn& library, int device) {
  Descriptor described(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  described.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, static_cast<std::int32_t>(device))
      .finalize("describe a GPU");
  return described.get_text(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
}

}  // namespace orrery::cuda

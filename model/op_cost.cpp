// What one op costs: the shape of its matrix products, its arithmetic, its memory traffic.

#include <algorithm>
#include <cassert>

#include "model/graph.hpp"
#include "model/import_ops.hpp"

namespace orrery {
namespace {

bool has(const std::vector<DimId>& shape, DimId dim) {
  return std::find(shape.begin(), shape.end(), dim) != shape.end();
}

// Operands and result of one product of a packed matmul.
struct Product {
  TensorId a, b, result;
};

Product product(const Op& op, std::size_t pair) {
  switch (op.kind) {
    case OpKind::kMatmul: return {op.inputs[0], op.inputs[1 + pair], op.outputs[pair]};
    case OpKind::kMatmulGradInput:
      return {op.inputs[pair], op.inputs[op.inputs.size() / 2 + pair], op.outputs[0]};
    case OpKind::kMatmulGradWeight: return {op.inputs[0], op.inputs[1 + pair], op.outputs[pair]};
    default: break;
  }
  assert(false && "only matmuls have products");
  return {};
}

std::size_t product_count(const Op& op) {
  switch (op.kind) {
    case OpKind::kMatmul: return op.outputs.size();
    case OpKind::kMatmulGradInput: return op.inputs.size() / 2;
    case OpKind::kMatmulGradWeight: return op.inputs.size() - 1;
    default: return 0;
  }
}

double matmul_flops(const Graph& graph, const Op& op, const Sizes& sizes) {
  double total = 0;
  for (std::size_t pair = 0; pair < product_count(op); ++pair) {
    const Contraction c = contraction(graph, op, pair, sizes);
    total += 2.0 * static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k) *
             static_cast<double>(c.batch);
  }
  return total;
}

// Forward two products a pair of a query and a key and query head: scores = q · kᵀ of d multiply-adds and
// o = p · v of e. Backward five: the scores again, dv = pᵀ · do and dp = do · vᵀ of e, dq = ds · k and
// dk = dsᵀ · q of d.
double attention_flops(const Graph& graph, const Op& op, const Sizes& sizes) {
  const std::vector<DimId>& q = graph[op.inputs[0]].shape;
  const auto size = [&](DimId dim) { return static_cast<double>(sizes[dim.index()]); };
  const double pairs = size(q[0]) * size(q[2]) * attention_pairs(op.attributes, sizes[q[1].index()]);
  const double scores = 2 * pairs * size(q[3]);
  const double values = 2 * pairs * size(graph[op.inputs[2]].shape[3]);
  if (op.kind == OpKind::kAttention) return scores + values;
  return 2.5 * (scores + values) + 0.5 * (scores - values);
}

// Element-wise arithmetic per element, read off the formulas; exp, tanh, division and square root count as
// one. Such ops are bound by memory, so these decide no time; they are here so that totals are whole.
double activation_flops(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return 4;  // x / (1 + exp(−x))
    case Activation::kGelu: return 8;  // x/2 · (1 + tanh(c · (x + c' · x³)))
    case Activation::kRelu: return 1;
    case Activation::kTanhCap: return 3;      // limit · tanh(x / limit)
    case Activation::kClampedSilu: return 9;  // Three clamps, g / (1 + exp(−a·g)), up + 1.
  }
  return 0;
}

double activation_gradient_flops(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return 8;   // σ, then dy · σ · (1 + x · (1 − σ))
    case Activation::kGelu: return 16;  // The tanh again, its derivative, the product rule.
    case Activation::kRelu: return 1;
    case Activation::kTanhCap: return 5;  // The tanh, then dy · (1 − tanh²).
    case Activation::kClampedSilu: return 14;
  }
  return 0;
}

double flops_per_element(const Op& op) {
  const OpAttributes& attributes = op.attributes;
  switch (op.kind) {
    case OpKind::kAddPositions:
    case OpKind::kAdd:
    case OpKind::kScale:
    case OpKind::kEmbeddingGrad:
    case OpKind::kAddPositionsGrad: return 1;
    case OpKind::kNorm:  // RMS: x², sum, scale, weight. Layer: and sum, subtract, bias.
      return attributes.norm == NormKind::kRms ? 4 : 7;
    case OpKind::kNormGrad:  // r · (w·dy − x̂ · mean(w·dy·x̂)) with r and x̂ recomputed, dw += dy·x̂;
                             // Layer: and the two means and dbias.
      return attributes.norm == NormKind::kRms ? 11 : 16;
    case OpKind::kRope:
    case OpKind::kRopeGrad: return 3 * attributes.rotary_fraction;  // 4 products, 2 sums a pair.
    case OpKind::kUnary: return activation_flops(attributes.activation);
    case OpKind::kUnaryGrad: return activation_gradient_flops(attributes.activation);
    case OpKind::kGated: return activation_flops(attributes.activation) + 1;
    case OpKind::kGatedGrad:  // dup = dy · act(gate); dgate = dy · up · act'(gate).
      return activation_flops(attributes.activation) + 2 + activation_gradient_flops(attributes.activation);
    case OpKind::kRowGate: return 1;
    case OpKind::kRowGateGrad: return 3;  // dx = σ · dy; dgate = σ' · Σ dy · x.
    case OpKind::kDropout:
    case OpKind::kDropoutGrad: return 2;       // mask · x / keep
    case OpKind::kCrossEntropy: return 4;      // max, subtract, exp, sum
    case OpKind::kCrossEntropyGrad: return 3;  // (exp(x − lse) − onehot) / tokens, the one hot not counted
    case OpKind::kRoute: return 5;             // Softmax as above, and a comparison a logit for the largest.
    case OpKind::kRouteGrad: return 4;         // p · (dp − Σ p · dp)
    case OpKind::kDispatch: return op.inputs.size() == 3 ? 1 : 0;
    case OpKind::kDispatchGrad:  // The sum over a token's rows; weighted: w · drow, x · drow.
      return op.inputs.size() == 4 ? 4 : 1;
    case OpKind::kCombine: return op.inputs.size() == 3 ? 2 : 1;
    case OpKind::kCombineGrad: return op.inputs.size() == 4 ? 3 : 0;  // w · dy; dw = Σ row · dy.
    case OpKind::kAdamW: return 16;  // m: 3, v: 4, corrections: 2, quotient: 3, decay and update: 4
    default: return 0;
  }
}

// The tensors whose elements flops_per_element counts.
double elements(const Graph& graph, const Op& op, const Sizes& sizes) {
  const auto count = [&](TensorId tensor) {
    return static_cast<double>(element_count(graph, tensor, sizes));
  };
  switch (op.kind) {
    case OpKind::kRope:
    case OpKind::kRopeGrad: {
      double sum = 0;
      for (const TensorId input : op.inputs) sum += count(input);
      return sum;
    }
    case OpKind::kEmbeddingGrad:
    case OpKind::kRowGate:
    case OpKind::kRowGateGrad: return count(op.inputs[1]);
    case OpKind::kDispatch:
    case OpKind::kCombineGrad: return count(op.outputs[0]);
    default: return count(op.inputs[0]);
  }
}

// How many rows of a table an op touches at most.
std::int64_t table_rows(const Graph& graph, const Op& op, const Sizes& sizes, TensorId table) {
  const std::int64_t rows = sizes[graph[table].shape[0].index()];
  const Tensor& first = graph[op.inputs[0]];
  const bool by_token = op.kind == OpKind::kEmbedding || op.kind == OpKind::kEmbeddingGrad;
  const std::int64_t picked =
      by_token ? element_count(graph, op.inputs[0], sizes) : sizes[first.shape[1].index()];
  return std::min(rows, picked);
}

std::int64_t table_bytes(const Graph& graph, const Op& op, const Sizes& sizes, TensorId table) {
  const Tensor& tensor = graph[table];
  return table_rows(graph, op, sizes, table) * sizes[tensor.shape[1].index()] * size_bytes(tensor.dtype);
}

}  // namespace

Contraction contraction(const Graph& graph, const Op& op, std::size_t pair, const Sizes& sizes) {
  const Product p = product(op, pair);
  const std::vector<DimId>& a = graph[p.a].shape;
  const std::vector<DimId>& result = graph[p.result].shape;
  Contraction c;
  for (const DimId dim : a) {
    (!has(result, dim) ? c.k : has(graph[p.b].shape, dim) ? c.batch : c.m) *= sizes[dim.index()];
  }
  for (const DimId dim : result) {
    if (!has(a, dim)) c.n *= sizes[dim.index()];
  }
  return c;
}

double attention_pairs(const OpAttributes& attributes, std::int64_t sequence) {
  const double s = static_cast<double>(sequence);
  if (!attributes.causal) return s * s;
  if (attributes.window > 0 && attributes.window < sequence) {
    const double window = static_cast<double>(attributes.window);
    return s * window - 0.5 * window * window;
  }
  if (attributes.chunk > 0 && attributes.chunk < sequence) {
    const double chunk = static_cast<double>(attributes.chunk);
    const double rest = static_cast<double>(sequence % attributes.chunk);
    return 0.5 * ((s - rest) * chunk + rest * rest);
  }
  return 0.5 * (s * s);
}

double flops(const Graph& graph, const Op& op, const Sizes& sizes) {
  if (only_imported(op.kind)) return imported_flops(graph, op, sizes);
  switch (op.kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight: return matmul_flops(graph, op, sizes);
    case OpKind::kAttention:
    case OpKind::kAttentionGrad: return attention_flops(graph, op, sizes);
    case OpKind::kHeadConcatGrad:  // A shared part is summed over the heads.
      return static_cast<double>(element_count(graph, op.inputs[0], sizes) -
                                 element_count(graph, op.outputs[0], sizes) -
                                 element_count(graph, op.outputs[1], sizes));
    default: return flops_per_element(op) * elements(graph, op, sizes);
  }
}

Traffic traffic(const Graph& graph, const Op& op, const Sizes& sizes) {
  if (only_imported(op.kind)) return imported_traffic(graph, op, sizes);
  Traffic total;
  for (const TensorId input : op.inputs) total.read_bytes += size_bytes(graph, input, sizes);
  for (const TensorId output : op.outputs) total.written_bytes += size_bytes(graph, output, sizes);
  switch (op.kind) {
    case OpKind::kEmbedding:
    case OpKind::kAddPositions:
      total.read_bytes +=
          table_bytes(graph, op, sizes, op.inputs[1]) - size_bytes(graph, op.inputs[1], sizes);
      break;
    case OpKind::kEmbeddingGrad:
    case OpKind::kAddPositionsGrad: total.written_bytes = table_bytes(graph, op, sizes, op.outputs[0]); break;
    case OpKind::kAdamW:  // w, dw, master, m, v: all but dw are written, all but w are read.
      total.written_bytes = total.read_bytes - size_bytes(graph, op.inputs[1], sizes);
      total.read_bytes -= size_bytes(graph, op.inputs[0], sizes);
      break;
    default: break;
  }
  return total;
}

}  // namespace orrery

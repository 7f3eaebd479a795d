#include "executor/host/reference_loops.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace orrery::host {
namespace {}  // namespace

double activate(Activation kind, double x, double limit) {
  switch (kind) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kRelu: return std::max(x, 0.0);
    case Activation::kTanhCap: return limit * std::tanh(x / limit);
    case Activation::kClampedSilu: break;  // Takes two operands.
  }
  return 0;
}

double slope(Activation kind, double x, double limit) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  switch (kind) {
    case Activation::kSilu: return sigmoid * (1 + x * (1 - sigmoid));
    case Activation::kGelu:
      return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) +
             x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    case Activation::kRelu: return x > 0 ? 1 : 0;
    case Activation::kTanhCap: return 1 - std::pow(std::tanh(x / limit), 2);
    case Activation::kClampedSilu: break;
  }
  return 0;
}

void ReferenceOp::each(const Shape& loop, const std::vector<Shape>& shapes,
                       const std::function<void(const std::vector<std::size_t>&)>& body) const {
  // How far one step along a loop dimension moves in each tensor.
  std::vector<std::vector<std::size_t>> strides(loop.size(), std::vector<std::size_t>(shapes.size(), 0));
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    std::size_t stride = 1;
    for (std::size_t d = shapes[t].size(); d-- > 0; stride *= size(shapes[t][d])) {
      const auto at = std::find(loop.begin(), loop.end(), shapes[t][d]) - loop.begin();
      strides[static_cast<std::size_t>(at)][t] = stride;
    }
  }
  std::vector<std::size_t> index(loop.size(), 0), offsets(shapes.size(), 0);
  std::size_t total = 1;
  for (const DimId dim : loop) total *= size(dim);
  for (std::size_t step = 0; step < total; ++step) {
    body(offsets);
    for (std::size_t d = loop.size(); d-- > 0;) {
      for (std::size_t t = 0; t < offsets.size(); ++t) offsets[t] += strides[d][t];
      if (++index[d] < size(loop[d])) break;
      for (std::size_t t = 0; t < offsets.size(); ++t) offsets[t] -= index[d] * strides[d][t];
      index[d] = 0;
    }
  }
}

void ReferenceOp::product(Operand first, Operand second, Operand result) {
  const Shape& a = first.shape;
  const Shape& b = second.shape;
  Shape loop = a;
  for (const DimId dim : b) {
    if (std::find(a.begin(), a.end(), dim) == a.end()) loop.push_back(dim);
  }
  each(loop, {a, b, result.shape}, [&](const std::vector<std::size_t>& at) {
    result.values[at[2]] += first.values[at[0]] * second.values[at[1]];
  });
}

// y += bias, or in reverse bias += y.
void ReferenceOp::add_bias(Operand bias, Operand y, bool reverse) {
  each(y.shape, {bias.shape, y.shape}, [&](const std::vector<std::size_t>& at) {
    double& from = (reverse ? y : bias).values[at[reverse ? 1 : 0]];
    double& to = (reverse ? bias : y).values[at[reverse ? 0 : 1]];
    to += from;
  });
}

// Parameter gradients are sums that go on; everything else is written afresh.
void ReferenceOp::clear_outputs() {
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    if (graph_[op_.outputs[i]].kind == TensorKind::kParameterGradient) continue;
    std::fill(out(i).begin(), out(i).end(), 0.0);
  }
}

void ReferenceOp::embedding() {
  const bool backward = op_.kind == OpKind::kEmbeddingGrad;
  Vector& table = backward ? out(0) : in(1);
  Vector& rows = backward ? in(1) : out(0);
  const std::size_t width = backward ? last(1) : size(out_shape(0).back());
  for (std::size_t token = 0; token < in(0).size(); ++token) {
    const std::int64_t entry_of = static_cast<std::int64_t>(in(0)[token]) - view_.vocab_begin;
    if (entry_of < 0 || static_cast<std::size_t>(entry_of) * width >= table.size()) continue;
    const std::size_t row = static_cast<std::size_t>(entry_of);
    for (std::size_t i = 0; i < width; ++i) {
      double& entry = table[row * width + i];
      double& value = rows[token * width + i];
      (backward ? entry : value) += backward ? value : entry;
    }
  }
}

// Position p uses row p of the table.
void ReferenceOp::positions() {
  const bool backward = op_.kind == OpKind::kAddPositionsGrad;
  const Vector& x = in(0);
  const std::size_t width = last(0);
  const std::size_t sequence = size(in_shape(0)[1]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t entry = position(i / width % sequence) * width + i % width;
    if (backward) {
      out(0)[entry] += x[i];
    } else {
      out(0)[i] = x[i] + in(1)[entry];
    }
  }
}

struct Moments {
  double mean = 0;
  double scale = 0;
};

Moments moments(const double* x, std::size_t n, const OpAttributes& attributes) {
  Moments m;
  const double count = static_cast<double>(n);
  if (attributes.norm == NormKind::kLayer) {
    for (std::size_t i = 0; i < n; ++i) m.mean += x[i] / count;
  }
  double square = 0;
  for (std::size_t i = 0; i < n; ++i) square += (x[i] - m.mean) * (x[i] - m.mean) / count;
  m.scale = 1 / std::sqrt(square + attributes.epsilon);
  return m;
}

// Rows are as wide as the weight, or the last dimension.
std::size_t norm_width(std::size_t last, const Vector* weight) {
  return weight == nullptr ? last : weight->size();
}

void ReferenceOp::norm() {
  const Vector* weight = op_.attributes.weight ? &in(1) : nullptr;
  const std::size_t n = norm_width(last(0), weight);
  for (std::size_t row = 0; row < in(0).size(); row += n) {
    const Moments m = moments(&in(0)[row], n, op_.attributes);
    for (std::size_t i = 0; i < n; ++i) {
      const double bias = op_.attributes.bias ? in(2)[i] : 0;
      out(0)[row + i] = (in(0)[row + i] - m.mean) * m.scale * (weight ? (*weight)[i] : 1) + bias;
    }
  }
}

void ReferenceOp::norm_grad() {
  const Vector* weight = op_.attributes.weight ? &in(1) : nullptr;
  const Vector& dy = in(weight ? 2 : 1);
  const std::size_t n = norm_width(last(0), weight);
  const double count = static_cast<double>(n);
  for (std::size_t row = 0; row < in(0).size(); row += n) {
    const Moments m = moments(&in(0)[row], n, op_.attributes);
    const auto normed = [&](std::size_t i) { return (in(0)[row + i] - m.mean) * m.scale; };
    const auto scaled = [&](std::size_t i) { return (weight ? (*weight)[i] : 1) * dy[row + i]; };
    double dot = 0;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      dot += scaled(i) * normed(i) / count;
      if (op_.attributes.norm == NormKind::kLayer) sum += scaled(i) / count;
      if (weight) out(1)[i] += dy[row + i] * normed(i);
      if (op_.attributes.bias) out(2)[i] += dy[row + i];
    }
    for (std::size_t i = 0; i < n; ++i) out(0)[row + i] = m.scale * (scaled(i) - sum - normed(i) * dot);
  }
}

void ReferenceOp::matmul() {
  const auto operand_in = [&](std::size_t i) { return Operand{in(i), in_shape(i)}; };
  const auto operand_out = [&](std::size_t i) { return Operand{out(i), out_shape(i)}; };
  const bool bias = op_.attributes.bias;
  if (op_.kind == OpKind::kMatmul) {
    const std::size_t n = op_.outputs.size();
    for (std::size_t i = 0; i < n; ++i) {
      product(operand_in(0), operand_in(1 + i), operand_out(i));
      if (bias) add_bias(operand_in(1 + n + i), operand_out(i), false);
    }
  } else if (op_.kind == OpKind::kMatmulGradInput) {
    const std::size_t n = op_.inputs.size() / 2;
    for (std::size_t i = 0; i < n; ++i) product(operand_in(i), operand_in(n + i), operand_out(0));
  } else {
    const std::size_t n = op_.inputs.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
      product(operand_in(0), operand_in(1 + i), operand_out(i));
      if (bias) add_bias(operand_out(n + i), operand_in(1 + i), true);
    }
  }
}

// Rotates the first part of each head, dimension i with i + rotated/2; −1 rotates back.
void ReferenceOp::rope(double direction) {
  for (std::size_t tensor = 0; tensor < op_.inputs.size(); ++tensor) {
    const Shape& shape = in_shape(tensor);
    const std::size_t d = size(shape[3]);
    const std::size_t heads = size(shape[2]);
    const std::size_t sequence = size(shape[1]);
    const std::size_t rotated =
        static_cast<std::size_t>(std::llround(op_.attributes.rotary_fraction * static_cast<double>(d)));
    out(tensor) = in(tensor);
    for (std::size_t head = 0; head * d < in(tensor).size(); ++head) {
      const double turns = static_cast<double>(position(head / heads % sequence));
      for (std::size_t i = 0; i < rotated / 2; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotated);
        const double angle = direction * turns * std::pow(op_.attributes.rope_theta, exponent);
        const double x = in(tensor)[head * d + i];
        const double y = in(tensor)[head * d + i + rotated / 2];
        out(tensor)[head * d + i] = x * std::cos(angle) - y * std::sin(angle);
        out(tensor)[head * d + i + rotated / 2] = x * std::sin(angle) + y * std::cos(angle);
      }
    }
  }
}

// g · sigmoid(1.702 g) · (up + 1) of a clamped gate and a clamped up.
void ReferenceOp::clamped_gate(std::size_t i) {
  const double limit = op_.attributes.limit, slope_of = 1.702;
  const double g = std::min(in(0)[i], limit), up = std::clamp(in(1)[i], -limit, limit);
  const double sigmoid = 1 / (1 + std::exp(-slope_of * g));
  if (op_.kind == OpKind::kGated) {
    out(0)[i] = g * sigmoid * (up + 1);
    return;
  }
  const double dg = sigmoid * (1 + slope_of * g * (1 - sigmoid)) * (up + 1);
  out(0)[i] = in(0)[i] < limit ? dg * in(2)[i] : 0;
  out(1)[i] = std::abs(in(1)[i]) < limit ? g * sigmoid * in(2)[i] : 0;
}

// Element by element. A dropout mask keeps all but every third element of a row, another third in each
// position.
void ReferenceOp::activation() {
  const Activation kind = op_.attributes.activation;
  const double limit = op_.attributes.limit;
  const double keep = 1 - op_.attributes.rate;
  for (std::size_t i = 0; i < out(0).size(); ++i) {
    const double x = in(0)[i];
    if (kind == Activation::kClampedSilu && (op_.kind == OpKind::kGated || op_.kind == OpKind::kGatedGrad)) {
      clamped_gate(i);
      continue;
    }
    switch (op_.kind) {
      case OpKind::kUnary: out(0)[i] = activate(kind, x, limit); break;
      case OpKind::kUnaryGrad: out(0)[i] = slope(kind, x, limit) * in(1)[i]; break;
      case OpKind::kGated: out(0)[i] = activate(kind, x, limit) * in(1)[i]; break;
      case OpKind::kGatedGrad:
        out(0)[i] = slope(kind, x, limit) * in(1)[i] * in(2)[i];
        out(1)[i] = activate(kind, x, limit) * in(2)[i];
        break;
      case OpKind::kScale: out(0)[i] = op_.attributes.scale * x; break;
      case OpKind::kAdd: out(0)[i] = x + in(1)[i]; break;
      case OpKind::kDropout:
        out(1)[i] = (position(i / last(0) % size(in_shape(0)[1])) + i % last(0)) % 3 == 1 ? 0 : 1;
        out(0)[i] = x * out(1)[i] / keep;
        break;
      case OpKind::kDropoutGrad: out(0)[i] = x * in(1)[i] / keep; break;
      default: break;
    }
  }
}

// The mean over tokens of lse(logits) − logit of the label.
void ReferenceOp::cross_entropy(bool backward) {
  const std::size_t vocab = last(0), tokens = in(1).size();
  const double weight = loss_weight(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int64_t label = static_cast<std::int64_t>(in(1)[t]) - view_.vocab_begin;
    double total = 0;
    for (std::size_t i = 0; i < vocab; ++i) total += counts(i) ? std::exp(in(0)[t * vocab + i]) : 0;
    if (!backward) {
      out(1)[t] = std::log(total);
      out(0)[0] += weight * (out(1)[t] - in(0)[t * vocab + static_cast<std::size_t>(label)]);
      continue;
    }
    for (std::size_t i = 0; i < vocab; ++i) {
      const double p = counts(i) ? std::exp(in(0)[t * vocab + i] - in(2)[t]) : 0;
      out(0)[t * vocab + i] = weight * (p - (static_cast<std::int64_t>(i) == label ? 1 : 0));
    }
  }
}

void ReferenceOp::run() {
  clear_outputs();
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
    case OpKind::kAttention: return attention(false);
    case OpKind::kAttentionGrad: return attention(true);
    case OpKind::kHeadConcat:
    case OpKind::kHeadConcatGrad: return head_concat();
    case OpKind::kRowGate:
    case OpKind::kRowGateGrad: return row_gate();
    case OpKind::kRoute:
    case OpKind::kRouteGrad: return route();
    case OpKind::kDispatch:
    case OpKind::kDispatchGrad: return dispatch();
    case OpKind::kCombine:
    case OpKind::kCombineGrad: return combine();
    case OpKind::kCrossEntropy: return cross_entropy(false);
    case OpKind::kCrossEntropyGrad: return cross_entropy(true);
    case OpKind::kAdamW: return;
    default: return activation();
  }
}

void run_op(const Graph& graph, const Op& op, const OpView& view, const std::vector<Values*>& inputs,
            const std::vector<Values*>& outputs) {
  ReferenceOp(graph, op, view, inputs, outputs).run();
}

}  // namespace orrery::host

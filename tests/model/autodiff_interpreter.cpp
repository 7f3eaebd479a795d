#include "tests/model/autodiff_interpreter.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

#include "base/random.hpp"
#include "tests/model/autodiff_interpreter_ops.hpp"

namespace orrery::test {
namespace {

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

}  // namespace

void Interpreter::each(const Shape& loop, const std::vector<Shape>& shapes,
                       const std::function<void(const std::vector<std::size_t>&)>& body) const {
  std::vector<std::size_t> index(loop.size(), 0);
  std::size_t total = 1;
  for (const DimId dim : loop) total *= size(dim);
  for (std::size_t step = 0; step < total; ++step) {
    std::size_t rest = step;
    for (std::size_t d = loop.size(); d-- > 0; rest /= size(loop[d])) index[d] = rest % size(loop[d]);
    std::vector<std::size_t> offsets;
    for (const Shape& shape : shapes) {
      std::size_t offset = 0;
      for (const DimId dim : shape) {
        const auto at = std::find(loop.begin(), loop.end(), dim);
        offset = offset * size(dim) + index[static_cast<std::size_t>(at - loop.begin())];
      }
      offsets.push_back(offset);
    }
    body(offsets);
  }
}

void Interpreter::product(std::size_t a_id, std::size_t b_id, std::size_t result_id) {
  const Shape& a = graph_.tensors[a_id].shape;
  const Shape& b = graph_.tensors[b_id].shape;
  Shape loop = a;
  for (const DimId dim : b) {
    if (std::find(a.begin(), a.end(), dim) == a.end()) loop.push_back(dim);
  }
  each(loop, {a, b, graph_.tensors[result_id].shape}, [&](const std::vector<std::size_t>& at) {
    values_[result_id][at[2]] += values_[a_id][at[0]] * values_[b_id][at[1]];
  });
}

// y += bias, or in reverse bias += y.
void Interpreter::add_bias(std::size_t bias_id, std::size_t y_id, bool reverse) {
  each(graph_.tensors[y_id].shape, {graph_.tensors[bias_id].shape, graph_.tensors[y_id].shape},
       [&](const std::vector<std::size_t>& at) {
         double& bias = values_[bias_id][at[0]];
         double& y = values_[y_id][at[1]];
         (reverse ? bias : y) += reverse ? y : bias;
       });
}

// Parameter gradients are sums that go on; everything else is written afresh.
void Interpreter::clear_outputs() {
  for (const TensorId output : op_.outputs) {
    if (graph_[output].kind == TensorKind::kParameterGradient) continue;
    std::fill(values_[output.index()].begin(), values_[output.index()].end(), 0.0);
  }
}

void Interpreter::embedding() {
  const bool backward = op_.kind == OpKind::kEmbeddingGrad;
  Vector& table = backward ? out(0) : in(1);
  Vector& rows = backward ? in(1) : out(0);
  const std::size_t width = backward ? last(1) : size(out_shape(0).back());
  for (std::size_t token = 0; token < in(0).size(); ++token) {
    const std::size_t row = static_cast<std::size_t>(in(0)[token]);
    for (std::size_t i = 0; i < width; ++i) {
      double& entry = table[row * width + i];
      double& value = rows[token * width + i];
      (backward ? entry : value) += backward ? value : entry;
    }
  }
}

// Position p uses row p of the table.
void Interpreter::positions() {
  const bool backward = op_.kind == OpKind::kAddPositionsGrad;
  const Vector& x = in(0);
  const std::size_t width = last(0);
  const std::size_t sequence = size(in_shape(0)[1]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t entry = (i / width % sequence) * width + i % width;
    if (backward) {
      out(0)[entry] += x[i];
    } else {
      out(0)[i] = x[i] + in(1)[entry];
    }
  }
}

void Interpreter::norm() {
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

void Interpreter::norm_grad() {
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

void Interpreter::matmul() {
  const auto in_id = [&](std::size_t i) { return op_.inputs[i].index(); };
  const auto out_id = [&](std::size_t i) { return op_.outputs[i].index(); };
  const bool bias = op_.attributes.bias;
  if (op_.kind == OpKind::kMatmul) {
    const std::size_t n = op_.outputs.size();
    for (std::size_t i = 0; i < n; ++i) {
      product(in_id(0), in_id(1 + i), out_id(i));
      if (bias) add_bias(in_id(1 + n + i), out_id(i), false);
    }
  } else if (op_.kind == OpKind::kMatmulGradInput) {
    const std::size_t n = op_.inputs.size() / 2;
    for (std::size_t i = 0; i < n; ++i) product(in_id(i), in_id(n + i), out_id(0));
  } else {
    const std::size_t n = op_.inputs.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
      product(in_id(0), in_id(1 + i), out_id(i));
      if (bias) add_bias(out_id(n + i), in_id(1 + i), true);
    }
  }
}

// g · sigmoid(1.702 g) · (up + 1) of a clamped gate and a clamped up.
void Interpreter::clamped_gate(std::size_t i) {
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

// Element by element. A dropout mask keeps all but every third element.
void Interpreter::activation() {
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
        out(1)[i] = i % 3 == 1 ? 0 : 1;
        out(0)[i] = x * out(1)[i] / keep;
        break;
      case OpKind::kDropoutGrad: out(0)[i] = x * in(1)[i] / keep; break;
      default: break;
    }
  }
}

// The mean over tokens of lse(logits) − logit of the label.
void Interpreter::cross_entropy(bool backward) {
  const std::size_t vocab = last(0);
  const std::size_t tokens = in(1).size();
  const double weight = 1 / static_cast<double>(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::size_t label = static_cast<std::size_t>(in(1)[t]);
    double total = 0;
    for (std::size_t i = 0; i < vocab; ++i) total += std::exp(in(0)[t * vocab + i]);
    if (!backward) {
      out(1)[t] = std::log(total);
      out(0)[0] += weight * (out(1)[t] - in(0)[t * vocab + label]);
      continue;
    }
    for (std::size_t i = 0; i < vocab; ++i) {
      const double p = std::exp(in(0)[t * vocab + i] - in(2)[t]);
      out(0)[t * vocab + i] = weight * (p - (i == label ? 1 : 0));
    }
  }
}

void Interpreter::run() {
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

Values initial_values(const Graph& graph, const Sizes& sizes, std::uint64_t seed) {
  Random random(seed);
  std::int64_t vocab = 0;
  for (std::size_t i = 0; i < graph.dims.size(); ++i) {
    if (graph.dims[i].role == DimRole::kVocab) vocab = sizes[i];
  }
  Values values;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const auto count = element_count(graph, TensorId(static_cast<std::int64_t>(i)), sizes);
    Vector& tensor = values.emplace_back(static_cast<std::size_t>(count), 0.0);
    const TensorKind kind = graph.tensors[i].kind;
    for (double& x : tensor) {
      if (kind == TensorKind::kInput) x = static_cast<double>(random.between(0, vocab - 1));
      if (kind == TensorKind::kParameter || kind == TensorKind::kBuffer) x = random.uniform() - 0.4;
    }
  }
  return values;
}

void run_phase(const Graph& graph, const Sizes& sizes, Phase phase, Values& values) {
  for (const Op& op : graph.ops) {
    if (op.phase == phase) Interpreter(graph, sizes, op, values).run();
  }
}

}  // namespace orrery::test

#include "executor/host/reference_loops.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::host {
namespace {

// Which keys a query sees.
bool sees(const OpAttributes& attributes, std::size_t query, std::size_t key) {
  if (key > query) return !attributes.causal;
  const auto window = static_cast<std::size_t>(attributes.window);
  const auto chunk = static_cast<std::size_t>(attributes.chunk);
  return (window == 0 || query - key < window) && (chunk == 0 || query / chunk == key / chunk);
}

}  // namespace

void ReferenceOp::attention(bool backward) {
  const Shape& q_shape = in_shape(0);
  const std::size_t batch = size(q_shape[0]), s = size(q_shape[1]), a = size(q_shape[2]),
                    d = size(q_shape[3]);
  const std::size_t keys = view_.key_positions.empty() ? s : view_.key_positions.size();
  const std::size_t g = size(in_shape(1)[2]), e = size(in_shape(2)[3]);
  const std::size_t operands = backward ? op_.inputs.size() - 3 : op_.inputs.size();
  const bool sink = operands == 4 && view_.first_keys;
  const OpAttributes& attributes = op_.attributes;
  const double scale =
      attributes.score_scale > 0 ? attributes.score_scale : 1 / std::sqrt(static_cast<double>(d));
  const double cap = attributes.softcap;
  for (std::size_t row = 0; row < batch * a * s; ++row) {
    const std::size_t b = row / (a * s), h = row / s % a, i = row % s;
    const std::size_t q = ((b * s + i) * a + h) * d, o = ((b * s + i) * a + h) * e;
    const auto pair_at = [&](std::size_t j) { return (b * keys + j) * g + h / (a / g); };
    Vector p(keys, 0.0), capped(keys, 0.0);
    double total = sink ? std::exp(in(3)[h]) : 0;
    for (std::size_t j = 0; j < keys; ++j) {
      if (!sees(attributes, position(i), key_position(j))) continue;
      for (std::size_t c = 0; c < d; ++c) capped[j] += scale * in(0)[q + c] * in(1)[pair_at(j) * d + c];
      if (cap > 0) capped[j] = cap * std::tanh(capped[j] / cap);
      total += p[j] = std::exp(capped[j]);
    }
    // A backward has the sum over all keys, of which these may be a part.
    if (backward) total = std::exp(in(operands + 1)[(b * s + i) * a + h]);
    for (double& x : p) x = total > 0 ? x / total : 0;
    if (!backward) {
      out(1)[(b * s + i) * a + h] = std::log(total);
      for (std::size_t j = 0; j < keys; ++j) {
        for (std::size_t c = 0; c < e; ++c) out(0)[o + c] += p[j] * in(2)[pair_at(j) * e + c];
      }
      continue;
    }
    const Vector& context = in(operands);
    const Vector& dy = in(operands + 2);
    double mean = 0;
    for (std::size_t c = 0; c < e; ++c) mean += dy[o + c] * context[o + c];
    if (sink) out(3)[h] -= std::exp(in(3)[h]) / total * mean;
    for (std::size_t j = 0; j < keys; ++j) {
      const std::size_t k = pair_at(j) * d, v = pair_at(j) * e;
      double dp = 0;
      for (std::size_t c = 0; c < e; ++c) dp += dy[o + c] * in(2)[v + c];
      const double through_cap = cap > 0 ? 1 - std::pow(capped[j] / cap, 2) : 1;
      const double dscore = p[j] * (dp - mean) * through_cap * scale;
      for (std::size_t c = 0; c < d; ++c) {
        out(0)[q + c] += dscore * in(1)[k + c];
        out(1)[k + c] += dscore * in(0)[q + c];
      }
      for (std::size_t c = 0; c < e; ++c) out(2)[v + c] += p[j] * dy[o + c];
    }
  }
}

// Parts of each head side by side; the second has its own heads or one for all.
void ReferenceOp::head_concat() {
  const bool backward = op_.kind == OpKind::kHeadConcatGrad;
  Vector& x = backward ? out(0) : in(0);
  Vector& y = backward ? out(1) : in(1);
  Vector& z = backward ? in(0) : out(0);
  const Shape& x_shape = backward ? out_shape(0) : in_shape(0);
  const Shape& y_shape = backward ? out_shape(1) : in_shape(1);
  const std::size_t c = size(x_shape[3]), e = size(y_shape[3]), heads = size(x_shape[2]);
  const std::size_t share = heads / size(y_shape[2]);
  for (std::size_t head = 0; head * (c + e) < z.size(); ++head) {
    for (std::size_t i = 0; i < c + e; ++i) {
      double& whole = z[head * (c + e) + i];
      double& part = i < c ? x[head * c + i] : y[head / share * e + i - c];
      (backward ? part : whole) += backward ? whole : part;
    }
  }
}

void ReferenceOp::row_gate() {
  const bool backward = op_.kind == OpKind::kRowGateGrad;
  const std::size_t n = last(1);
  for (std::size_t i = 0; i < in(1).size(); ++i) {
    const double open = 1 / (1 + std::exp(-in(0)[i / n]));
    if (backward) {
      out(0)[i / n] += open * (1 - open) * in(1)[i] * in(2)[i];
      out(1)[i] = open * in(2)[i];
    } else {
      out(0)[i] = open * in(1)[i];
    }
  }
}

}  // namespace orrery::host

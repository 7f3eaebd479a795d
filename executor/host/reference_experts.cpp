#include "executor/host/reference_loops.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::host {

Vector ReferenceOp::scores_of(const double* logits, std::size_t experts) const {
  Vector scores(logits, logits + experts);
  double total = 0;
  for (double& x : scores) {
    x = op_.attributes.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x);
    total += x;
  }
  if (op_.attributes.score == RouterScore::kSoftmax) {
    for (double& x : scores) x /= total;
  }
  return scores;
}

// The k best experts of the best groups, best first.
void ReferenceOp::pick(const Vector& scores, std::size_t token) {
  const std::size_t experts = scores.size(), k = size(out_shape(1).back());
  Vector choice = scores;
  for (std::size_t e = 0; e < experts && op_.inputs.size() == 2; ++e) choice[e] += in(1)[e];
  const std::size_t groups = static_cast<std::size_t>(op_.attributes.groups), width = experts / groups;
  std::vector<std::pair<double, std::size_t>> ranked;
  for (std::size_t g = 0; g < groups; ++g) {
    Vector members(choice.begin() + static_cast<std::ptrdiff_t>(g * width),
                   choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * width));
    std::sort(members.begin(), members.end(), std::greater<>());
    const bool two = op_.attributes.score == RouterScore::kSigmoid && width > 1;
    ranked.emplace_back(members[0] + (two ? members[1] : 0), g);
  }
  std::sort(ranked.begin(), ranked.end(), std::greater<>());
  ranked.resize(static_cast<std::size_t>(op_.attributes.top_groups));
  std::vector<std::pair<double, std::size_t>> candidates;
  for (const auto& [score, g] : ranked) {
    for (std::size_t e = g * width; e < (g + 1) * width; ++e) candidates.emplace_back(choice[e], e);
  }
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  for (std::size_t i = 0; i < k; ++i) out(1)[token * k + i] = static_cast<double>(candidates[i].second);
}

void ReferenceOp::route() {
  const bool backward = op_.kind == OpKind::kRouteGrad;
  const OpAttributes& attributes = op_.attributes;
  const std::size_t experts = last(0), tokens = in(0).size() / experts;
  const std::size_t k = size(backward ? in_shape(1).back() : out_shape(1).back());
  for (std::size_t t = 0; t < tokens; ++t) {
    const Vector scores = scores_of(&in(0)[t * experts], experts);
    if (!backward) pick(scores, t);
    const Vector& picks = backward ? in(1) : out(1);
    const auto picked = [&](std::size_t i) { return static_cast<std::size_t>(picks[t * k + i]); };
    double total = 0;
    for (std::size_t i = 0; i < k; ++i) total += scores[picked(i)];
    const double divisor = attributes.normalized ? total : 1;
    if (!backward) {
      for (std::size_t i = 0; i < k; ++i) {
        out(0)[t * k + i] = attributes.scale * scores[picked(i)] / divisor;
      }
      continue;
    }
    // Of the scores that were picked, then of the scores' own logits.
    double mean = 0;
    for (std::size_t i = 0; i < k; ++i) mean += in(2)[t * k + i] * scores[picked(i)] / total;
    Vector dscore(experts, 0.0);
    double dot = 0;
    for (std::size_t i = 0; i < k; ++i) {
      const double through = in(2)[t * k + i] - (attributes.normalized ? mean : 0);
      dscore[picked(i)] = attributes.scale * through / divisor;
      dot += dscore[picked(i)] * scores[picked(i)];
    }
    for (std::size_t e = 0; e < experts; ++e) {
      const bool softmax = attributes.score == RouterScore::kSoftmax;
      out(0)[t * experts + e] = scores[e] * (softmax ? dscore[e] - dot : dscore[e] * (1 - scores[e]));
    }
  }
}

void ReferenceOp::dispatch() {
  const bool backward = op_.kind == OpKind::kDispatchGrad;
  const Shape& row_shape = backward ? in_shape(0) : out_shape(0);
  const std::size_t slots = size(row_shape[1]), h = size(row_shape[2]), k = size(in_shape(1).back());
  const bool weighted = op_.inputs.size() == (backward ? 4u : 3u);
  Vector taken(size(row_shape[0]), 0.0);
  for (std::size_t i = 0; i < in(1).size(); ++i) {
    if (!backward) {  // In the tokens' order, until the expert is full.
      double& filled = taken[static_cast<std::size_t>(in(1)[i])];
      out(1)[i] = filled < static_cast<double>(slots) ? in(1)[i] * static_cast<double>(slots) + filled : -1;
      filled += 1;
    }
    const double place = backward ? in(1)[i] : out(1)[i];
    if (place < 0) continue;
    const std::size_t row = static_cast<std::size_t>(place) * h, token = i / k * h;
    const double weight = weighted ? in(backward ? 3 : 2)[i] : 1;
    for (std::size_t c = 0; c < h; ++c) {
      if (backward) {
        out(0)[token + c] += weight * in(0)[row + c];
        if (weighted) out(1)[i] += in(2)[token + c] * in(0)[row + c];
      } else {
        out(0)[row + c] = weight * in(0)[token + c];
      }
    }
  }
}

void ReferenceOp::combine() {
  const bool backward = op_.kind == OpKind::kCombineGrad;
  const std::size_t h = last(0), k = size(in_shape(1).back());
  const bool weighted = op_.inputs.size() == (backward ? 4u : 3u);
  for (std::size_t i = 0; i < in(1).size(); ++i) {
    if (in(1)[i] < 0) continue;
    const std::size_t row = static_cast<std::size_t>(in(1)[i]) * h, token = i / k * h;
    const double weight = weighted ? in(backward ? 3 : 2)[i] : 1;
    for (std::size_t c = 0; c < h; ++c) {
      if (backward) {
        out(0)[row + c] = weight * in(0)[token + c];
        if (weighted) out(1)[i] += in(2)[row + c] * in(0)[token + c];
      } else {
        out(0)[token + c] += weight * in(0)[row + c];
      }
    }
  }
}

}  // namespace orrery::host

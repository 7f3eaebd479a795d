// Routers, and rows to experts and back.

#include <algorithm>
#include <cassert>

#include "executor/kernels/kernel_op.hpp"

namespace orrery::host {
namespace {

struct Ranked {
  float score;
  std::size_t index;
};

// As the reference has it: the higher score first, and of equal ones the higher index.
bool better(const Ranked& a, const Ranked& b) {
  return a.score != b.score ? a.score > b.score : a.index > b.index;
}

void best_first(Ranked* all, std::size_t n, std::size_t wanted) {
  std::partial_sort(all, all + wanted, all + n, better);
}

// How good a group of experts is: its best, or its two best together.
float group_score(const float* choice, std::size_t width, bool two) {
  float best = choice[0], second = choice[0];
  for (std::size_t e = 1; e < width; ++e) {
    second = choice[e] > best ? best : e == 1 ? choice[e] : std::max(second, choice[e]);
    best = std::max(best, choice[e]);
  }
  return two ? best + second : best;
}

}  // namespace

void KernelOp::scores_of(const float* logits, std::size_t experts, float* scores) const {
  if (op_.attributes.score == RouterScore::kSigmoid) {
    loop_.scale(-1, logits, scores, experts);
    loop_.exp(scores, scores, experts);
    for (std::size_t e = 0; e < experts; ++e) scores[e] = 1 / (1 + scores[e]);
    return;
  }
  const float largest = loop_.maximum(logits, experts);
  const float sum = loop_.sum_exp(logits, largest, experts);
  loop_.softmax_grad(logits, largest, 1 / sum, scores, experts);
}

void KernelOp::route() {
  const OpAttributes& attributes = op_.attributes;
  const std::size_t experts = last(0), tokens = count(0) / experts, k = size(out_shape(1).back());
  const auto groups = static_cast<std::size_t>(attributes.groups), width = experts / groups;
  const auto top_groups = static_cast<std::size_t>(attributes.top_groups);
  const bool two = attributes.score == RouterScore::kSigmoid && width > 1;
  float* scores = scratch_.take<float>(experts);
  float* choice = scratch_.take<float>(experts);
  Ranked* ranked = scratch_.take<Ranked>(groups);
  Ranked* candidates = scratch_.take<Ranked>(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    scores_of(in(0) + t * experts, experts, scores);
    std::copy_n(scores, experts, choice);
    if (op_.inputs.size() == 2) loop_.add(scores, in(1), choice, experts);
    for (std::size_t g = 0; g < groups; ++g) ranked[g] = {group_score(choice + g * width, width, two), g};
    best_first(ranked, groups, top_groups);
    for (std::size_t i = 0; i < top_groups * width; ++i) {
      const std::size_t e = ranked[i / width].index * width + i % width;
      candidates[i] = {choice[e], e};
    }
    best_first(candidates, top_groups * width, k);
    float total = 0;
    for (std::size_t i = 0; i < k; ++i) total += scores[candidates[i].index];
    const float factor = static_cast<float>(attributes.scale) / (attributes.normalized ? total : 1);
    for (std::size_t i = 0; i < k; ++i) {
      out(0)[t * k + i] = factor * scores[candidates[i].index];
      out(1)[t * k + i] = static_cast<float>(candidates[i].index);
    }
  }
}

void KernelOp::route_grad() {
  const OpAttributes& attributes = op_.attributes;
  const std::size_t experts = last(0), tokens = count(0) / experts, k = size(in_shape(1).back());
  const bool softmax = attributes.score == RouterScore::kSoftmax;
  const std::int64_t* picks = ids(1);
  float* scores = scratch_.take<float>(experts);
  float* dscores = scratch_.take<float>(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    scores_of(in(0) + t * experts, experts, scores);
    const auto picked = [&](std::size_t i) { return static_cast<std::size_t>(picks[t * k + i]); };
    const float* dweights = in(2) + t * k;
    float total = 0, mean = 0, dot = 0;
    for (std::size_t i = 0; i < k; ++i) total += scores[picked(i)];
    for (std::size_t i = 0; i < k; ++i) mean += dweights[i] * scores[picked(i)] / total;
    std::fill_n(dscores, experts, 0.0f);
    const float factor = static_cast<float>(attributes.scale) / (attributes.normalized ? total : 1);
    for (std::size_t i = 0; i < k; ++i) {
      dscores[picked(i)] = factor * (dweights[i] - (attributes.normalized ? mean : 0));
      dot += dscores[picked(i)] * scores[picked(i)];
    }
    for (std::size_t e = 0; e < experts; ++e) {
      out(0)[t * experts + e] = scores[e] * (softmax ? dscores[e] - dot : dscores[e] * (1 - scores[e]));
    }
  }
}

// In the tokens' order, until the expert is full.
void KernelOp::dispatch() {
  const std::size_t slots = size(out_shape(0)[1]), h = size(out_shape(0)[2]), k = size(in_shape(1).back());
  const std::size_t experts = size(out_shape(0)[0]), n = count(1);
  const std::int64_t* picks = ids(1);
  const float* weights = op_.inputs.size() == 3 ? in(2) : nullptr;
  float* rows = cleared(0);
  auto* taken = scratch_.take<std::size_t>(experts);
  std::fill_n(taken, experts, std::size_t{0});
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t& filled = taken[picks[i]];
    const bool fits = filled < slots;
    const std::size_t place = static_cast<std::size_t>(picks[i]) * slots + filled++;
    assert(place < (1u << 24) && "a float says which");
    out(1)[i] = fits ? static_cast<float>(place) : -1.0f;
    if (fits) loop_.scale(weights != nullptr ? weights[i] : 1, in(0) + i / k * h, rows + place * h, h);
  }
}

void KernelOp::dispatch_grad() {
  const std::size_t h = last(0), k = size(in_shape(1).back());
  const bool weighted = op_.inputs.size() == 4;
  const std::int64_t* places = ids(1);
  float* dx = cleared(0);
  if (weighted) cleared(1);
  for (std::size_t i = 0; i < count(1); ++i) {
    if (places[i] < 0) continue;
    const float* drow = in(0) + static_cast<std::size_t>(places[i]) * h;
    const std::size_t token = i / k * h;
    loop_.add_scaled(weighted ? in(3)[i] : 1, drow, dx + token, h);
    if (weighted) out(1)[i] = loop_.dot(in(2) + token, drow, h);
  }
}

void KernelOp::combine() {
  const std::size_t h = last(0), k = size(in_shape(1).back());
  const bool weighted = op_.inputs.size() == 3;
  const std::int64_t* places = ids(1);
  float* y = cleared(0);
  for (std::size_t i = 0; i < count(1); ++i) {
    if (places[i] < 0) continue;
    loop_.add_scaled(weighted ? in(2)[i] : 1, in(0) + static_cast<std::size_t>(places[i]) * h, y + i / k * h,
                     h);
  }
}

void KernelOp::combine_grad() {
  const std::size_t h = last(0), k = size(in_shape(1).back());
  const bool weighted = op_.inputs.size() == 4;
  const std::int64_t* places = ids(1);
  float* drows = cleared(0);
  if (weighted) cleared(1);
  for (std::size_t i = 0; i < count(1); ++i) {
    if (places[i] < 0) continue;
    const std::size_t row = static_cast<std::size_t>(places[i]) * h;
    const float* dy = in(0) + i / k * h;
    loop_.scale(weighted ? in(3)[i] : 1, dy, drows + row, h);
    if (weighted) out(1)[i] = loop_.dot(in(2) + row, dy, h);
  }
}

}  // namespace orrery::host

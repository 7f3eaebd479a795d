// The loss, whole and over a divided vocabulary, and what ring attention adds up.

#include <algorithm>
#include <cmath>
#include <limits>

#include "executor/kernels/kernel_op.hpp"

namespace orrery::host {
namespace {

float log_sum(float maximum, float sum) {
  return static_cast<float>(static_cast<double>(maximum) + std::log(static_cast<double>(sum)));
}

// Views of an instruction that has no op of its own, as floats; written ones go back at the end.
class Views {
 public:
  Views(std::span<const TensorView> views, Workspace& workspace) : views_(views), scratch_(workspace) {
    values_ = scratch_.take<float*>(views.size());
    for (std::size_t i = 0; i < views.size(); ++i) {
      const bool fp32 = views[i].dtype == DType::kFp32 || views[i].dtype == DType::kTf32;
      values_[i] = fp32 ? reinterpret_cast<float*>(views[i].data) : scratch_.take<float>(count(i));
      if (!fp32) read_floats(views[i], false, values_[i]);
    }
  }
  float* operator[](std::size_t i) { return values_[i]; }
  std::size_t count(std::size_t i) const { return static_cast<std::size_t>(views_[i].elements); }
  void write(std::size_t i) {
    const bool fp32 = views_[i].dtype == DType::kFp32 || views_[i].dtype == DType::kTf32;
    if (!fp32) write_floats(values_[i], false, views_[i]);
  }

 private:
  std::span<const TensorView> views_;
  Scratch scratch_;
  float** values_;
};

std::size_t real_entries(const OpView& view, std::size_t local) {
  if (view.vocab == 0) return local;
  return std::min(local, static_cast<std::size_t>(std::max<std::int64_t>(view.vocab - view.vocab_begin, 0)));
}

}  // namespace

// The mean over tokens of lse(logits) − logit of the label.
void KernelOp::cross_entropy() {
  const std::size_t vocab = last(0), tokens = count(1), real = real_entries(vocab);
  const std::int64_t* labels = ids(1);
  double loss = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* logits = in(0) + t * vocab;
    const float largest = loop_.maximum(logits, real);
    out(1)[t] = log_sum(largest, loop_.sum_exp(logits, largest, real));
    const auto label = static_cast<std::size_t>(labels[t] - view_.vocab_begin);
    assert(label < vocab);
    loss += static_cast<double>(out(1)[t]) - static_cast<double>(logits[label]);
  }
  const auto all =
      static_cast<double>(view_.loss_tokens > 0 ? view_.loss_tokens : static_cast<std::int64_t>(tokens));
  out(0)[0] = static_cast<float>(loss / all);
}

void KernelOp::cross_entropy_grad() {
  const std::size_t vocab = last(0), tokens = count(1), real = real_entries(vocab);
  const std::int64_t* labels = ids(1);
  const auto all =
      static_cast<double>(view_.loss_tokens > 0 ? view_.loss_tokens : static_cast<std::int64_t>(tokens));
  const float weight = static_cast<float>(1 / all);
  for (std::size_t t = 0; t < tokens; ++t) {
    float* result = out(0) + t * vocab;
    loop_.softmax_grad(in(0) + t * vocab, in(2)[t], weight, result, real);
    std::fill(result + real, result + vocab, 0.0f);
    const std::int64_t label = labels[t] - view_.vocab_begin;
    if (label >= 0 && label < static_cast<std::int64_t>(vocab)) result[label] -= weight;
  }
}

void run_loss_part(const OpView& view, int part, std::span<const TensorView> operands, Workspace& workspace) {
  const Loops& loop = loops(workspace.isa);
  Views x(operands, workspace);
  if (part == 2) {
    double loss = 0;
    for (std::size_t t = 0; t < x.count(0); ++t) {
      x[4][t] = log_sum(x[0][t], x[1][t]);
      loss += static_cast<double>(x[4][t]) - static_cast<double>(x[2][t]);
    }
    x[3][0] = static_cast<float>(loss / static_cast<double>(view.loss_tokens));
    x.write(3);
    x.write(4);
    return;
  }
  const std::size_t tokens = x.count(1), vocab = x.count(0) / tokens, real = real_entries(view, vocab);
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* logits = x[0] + t * vocab;
    if (part == 0) {
      x[1][t] = loop.maximum(logits, real);
      continue;
    }
    x[3][t] = loop.sum_exp(logits, x[2][t], real);
    // Read as floats, ids are exact up to 2²⁴, sixteen million entries.
    const std::int64_t label = static_cast<std::int64_t>(x[1][t]) - view.vocab_begin;
    x[4][t] = label >= 0 && label < static_cast<std::int64_t>(real) ? logits[label] : 0.0f;
  }
  if (part == 0) return x.write(1);
  x.write(3);
  x.write(4);
}

namespace {

// Softmax over both sets of keys (Milakov & Gimelshein 2018): contexts weighted with their share of the sum
// of exponentials. A set without any key that the query sees has a log-sum-exp of −∞.
void merge(const Loops& loop, Views& x, std::size_t to) {
  const std::size_t width = x.count(0) / x.count(1);
  for (std::size_t row = 0; row < x.count(1); ++row) {
    const float largest = std::max(x[1][row], x[3][row]);
    const bool none = largest == -std::numeric_limits<float>::infinity();
    float shares[2] = {x[1][row] - largest, x[3][row] - largest};
    loop.exp(shares, shares, 2);
    const float sum = shares[0] + shares[1];
    float* result = x[to] + row * width;
    loop.scale(none ? 0 : shares[0] / sum, x[0] + row * width, result, width);
    loop.add_scaled(none ? 0 : shares[1] / sum, x[2] + row * width, result, width);
    x[to + 1][row] = none ? largest : log_sum(largest, sum);
  }
}

}  // namespace

void add_ring_step(OpKind kind, bool in_place, std::span<const TensorView> operands, Workspace& workspace) {
  const Loops& loop = loops(workspace.isa);
  Views x(operands, workspace);
  if (kind == OpKind::kAttention) {
    const std::size_t to = operands.size() - (in_place ? 4 : 2);
    merge(loop, x, to);
    x.write(to);
    x.write(to + 1);
    return;
  }
  const std::size_t to = in_place ? 0 : 6;
  loop.add(x[0], x[1], x[to], x.count(0));
  loop.add(x[4], x[2], x[4], x.count(4));
  loop.add(x[5], x[3], x[5], x.count(5));
  for (const std::size_t i : {to, std::size_t{4}, std::size_t{5}}) x.write(i);
}

}  // namespace orrery::host

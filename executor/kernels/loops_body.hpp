#pragma once
// The functions behind Loops, for the instructions that ORRERY_ISA names. Included by loops_*.cpp alone.

#include "executor/kernels/lanes.hpp"
#include "executor/kernels/loops.hpp"
#include "executor/kernels/loops_activations.hpp"
#include "executor/kernels/loops_each.hpp"
#include "executor/kernels/loops_norms.hpp"
#include "executor/kernels/loops_tile.hpp"

namespace orrery::host {
namespace {

void add(const float* a, const float* b, float* y, std::size_t n) {
  map(a, b, y, n, [](const Lanes& p, const Lanes& q) { return p + q; });
}
void scale(float a, const float* x, float* y, std::size_t n) {
  const Lanes factor = all(a);
  map(x, y, n, [&](const Lanes& p) { return factor * p; });
}
void multiply(float a, const float* x, const float* z, float* y, std::size_t n) {
  const Lanes factor = all(a);
  map(x, z, y, n, [&](const Lanes& p, const Lanes& q) { return factor * p * q; });
}
void add_scaled(float a, const float* x, float* y, std::size_t n) {
  const Lanes factor = all(a);
  map(x, y, y, n, [&](const Lanes& p, const Lanes& q) { return fma(factor, p, q); });
}
void exp_all(const float* x, float* y, std::size_t n) {
  map(x, y, n, [](const Lanes& p) { return exp(p); });
}

float dot(const float* a, const float* b, std::size_t n) {
  return sum_over(n, [&](auto at, const Lanes& sum) { return fma(at(a), at(b), sum); });
}

float maximum(const float* x, std::size_t n) {
  Lanes largest = all(-__builtin_inff());
  each_lanes(
      n, [&](std::size_t i) { largest = max(load(x + i), largest); },
      [&](std::size_t i, std::size_t rest) {
        largest = max(load_first(x + i, rest, -__builtin_inff()), largest);
      });
  return max_of(largest);
}

float sum_exp(const float* x, float largest, std::size_t n) {
  const Lanes shift = all(largest);
  Lanes sum = all(0.0f);
  each_lanes(
      n, [&](std::size_t i) { sum = sum + exp(load(x + i) - shift); },
      [&](std::size_t i, std::size_t rest) {
        sum = sum + exp(load_first(x + i, rest, -__builtin_inff()) - shift);
      });
  return sum_of(sum);
}

void softmax_grad(const float* x, float log_sum, float weight, float* y, std::size_t n) {
  const Lanes shift = all(log_sum), factor = all(weight);
  map(x, y, n, [&](const Lanes& p) { return factor * exp(p - shift); });
}

// --- attention: n is a multiple of sixteen, which the caller pads to with keys that don't count ---

ORRERY_INLINE Lanes capped(const SoftmaxRow& row, const Lanes& x) {
  const Lanes scaled = all(row.scale) * x;
  return row.cap > 0 ? all(row.cap) * tanh(scaled / all(row.cap)) : scaled;
}

float softmax(const SoftmaxRow& row, float* x, std::size_t n, float* largest_so_far) {
  const Lanes none = all(-__builtin_inff());
  Lanes largest = all(*largest_so_far);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Lanes score = if_within(row.positions + i, row.low, row.high, capped(row, load(x + i)), none);
    store(x + i, score);
    largest = max(score, largest);
  }
  *largest_so_far = max_of(largest);
  const Lanes shift = all(*largest_so_far == -__builtin_inff() ? 0.0f : *largest_so_far);
  Lanes sum = all(0.0f);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Lanes p = exp(load(x + i) - shift);
    store(x + i, p);
    sum = sum + p;
  }
  return sum_of(sum);
}

void softmax_back(const SoftmaxRow& row, float log_sum, float mean, float* x, float* dp, std::size_t n) {
  const Lanes zero = all(0.0f), one = all(1.0f), shift = all(log_sum), level = all(mean);
  const Lanes factor = all(row.scale);
  for (std::size_t i = 0; i < n; i += kLanes) {
    const Lanes score = capped(row, load(x + i));
    const Lanes p = if_within(row.positions + i, row.low, row.high, exp(score - shift), zero);
    Lanes d = p * (load(dp + i) - level);
    if (row.cap > 0) {
      const Lanes t = score / all(row.cap);
      d = d * (one - t * t);
    }
    store(x + i, p);
    store(dp + i, d * factor);
  }
}

void adamw(const AdamWFactors& f, const float* gradient, float* weights, float* m, float* v, std::size_t n) {
  const Lanes scaled = all(f.gradient_scale), beta1 = all(f.beta1), rest1 = all(f.one_minus_beta1);
  const Lanes beta2 = all(f.beta2), rest2 = all(f.one_minus_beta2), minus_step = all(-f.step_size);
  const Lanes root_scale = all(f.root_scale), epsilon = all(f.epsilon), keep = all(f.keep);
  const auto step = [&](auto at, auto put) {
    const Lanes g = at(gradient) * scaled;
    const Lanes first = fma(beta1, at(m), rest1 * g);
    const Lanes second = fma(beta2, at(v), rest2 * g * g);
    const Lanes move = first / fma(root(second), root_scale, epsilon);
    put(m, first);
    put(v, second);
    put(weights, fma(minus_step, move, keep * at(weights)));
  };
  each_lanes(
      n,
      [&](std::size_t i) {
        step([&](const float* p) { return load(p + i); }, [&](float* p, const Lanes& x) { store(p + i, x); });
      },
      [&](std::size_t i, std::size_t rest) {
        step([&](const float* p) { return load_first(p + i, rest, 0); },
             [&](float* p, const Lanes& x) { store_first(p + i, rest, x); });
      });
}

constexpr Loops kLoops = {tile,    pack,    add,        scale,        multiply,   add_scaled,   dot,
                          exp_all, unary,   unary_grad, gated,        gated_grad, norm,         norm_grad,
                          rotate,  maximum, sum_exp,    softmax_grad, softmax,    softmax_back, adamw};

}  // namespace
}  // namespace orrery::host

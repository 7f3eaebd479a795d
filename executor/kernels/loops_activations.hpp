#pragma once
// Activations, gates and their slopes. Part of loops_body.hpp.

#include "executor/kernels/loops.hpp"
#include "executor/kernels/loops_each.hpp"

namespace orrery::host {
namespace {

ORRERY_INLINE Lanes activate(Activation kind, float limit, const Lanes& x) {
  const Lanes zero = all(0.0f), half = all(0.5f);
  switch (kind) {
    case Activation::kSilu: return x * sigmoid(x);
    case Activation::kGelu: return half * x * one_plus_erf(x * all(0.70710678118654752f));
    case Activation::kRelu: return max(x, zero);
    case Activation::kTanhCap: return all(limit) * tanh(x / all(limit));
    case Activation::kClampedSilu: break;  // Takes two operands.
  }
  return zero;
}

ORRERY_INLINE Lanes slope(Activation kind, float limit, const Lanes& x) {
  const Lanes zero = all(0.0f), one = all(1.0f), half = all(0.5f);
  switch (kind) {
    case Activation::kSilu: {
      const Lanes s = sigmoid(x);
      return s * fma(x, one - s, one);
    }
    case Activation::kGelu: {
      const Lanes density = exp(x * x * all(-0.5f)) * all(0.39894228040143268f);  // 1/√2π
      return fma(x, density, half * one_plus_erf(x * all(0.70710678118654752f)));
    }
    case Activation::kRelu: return if_less(zero, x, one, zero);
    case Activation::kTanhCap: {
      const Lanes t = tanh(x / all(limit));
      return one - t * t;
    }
    case Activation::kClampedSilu: break;
  }
  return zero;
}

void unary(Activation kind, float limit, const float* x, float* y, std::size_t n) {
  map(x, y, n, [&](const Lanes& p) { return activate(kind, limit, p); });
}
void unary_grad(Activation kind, float limit, const float* x, const float* dy, float* dx, std::size_t n) {
  map(x, dy, dx, n, [&](const Lanes& p, const Lanes& q) { return slope(kind, limit, p) * q; });
}

struct Clamped {
  Lanes g, up, open, value;
};
// g · sigmoid(1.702 g) · (up + 1) of a clamped gate and a clamped up.
ORRERY_INLINE Clamped clamped(float limit, const Lanes& gate, const Lanes& up) {
  const Lanes g = min(gate, all(limit)), u = max(min(up, all(limit)), all(-limit)) + all(1.0f);
  const Lanes open = sigmoid(all(1.702f) * g);
  return {g, u, open, g * open * u};
}

void gated(Activation kind, float limit, const float* gate, const float* up, float* y, std::size_t n) {
  map(gate, up, y, n, [&](const Lanes& g, const Lanes& u) {
    return kind == Activation::kClampedSilu ? clamped(limit, g, u).value : activate(kind, limit, g) * u;
  });
}

void gated_grad(Activation kind, float limit, const float* gate, const float* up, const float* dy,
                float* dgate, float* dup, std::size_t n) {
  const auto step = [&](auto at, auto put) {
    const Lanes g = at(gate), u = at(up), d = at(dy);
    if (kind != Activation::kClampedSilu) {
      put(dgate, slope(kind, limit, g) * u * d);
      put(dup, activate(kind, limit, g) * d);
      return;
    }
    const Lanes zero = all(0.0f), one = all(1.0f);
    const Clamped c = clamped(limit, g, u);
    const Lanes through = c.open * fma(all(1.702f) * c.g, one - c.open, one) * c.up * d;
    put(dgate, if_less(g, all(limit), through, zero));
    put(dup, if_less(max(u, zero - u), all(limit), c.g * c.open * d, zero));
  };
  each_lanes(
      n,
      [&](std::size_t i) {
        step([&](const float* p) { return load(p + i); }, [&](float* p, const Lanes& v) { store(p + i, v); });
      },
      [&](std::size_t i, std::size_t rest) {
        step([&](const float* p) { return load_first(p + i, rest, 0); },
             [&](float* p, const Lanes& v) { store_first(p + i, rest, v); });
      });
}

}  // namespace
}  // namespace orrery::host

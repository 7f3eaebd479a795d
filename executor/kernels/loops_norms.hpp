#pragma once
// Rows of norms and of rotated heads. Part of loops_body.hpp.

#include "executor/kernels/loops.hpp"
#include "executor/kernels/loops_each.hpp"

namespace orrery::host {
namespace {

struct Moments {
  float mean, scale;
};

ORRERY_INLINE Moments moments(NormKind kind, float epsilon, const float* x, std::size_t n) {
  const float count = static_cast<float>(n);
  float mean = 0;
  if (kind == NormKind::kLayer) {
    mean = sum_over(n, [&](auto at, const Lanes& sum) { return sum + at(x); }) / count;
  }
  const Lanes shift = all(mean);
  Lanes squares = all(0.0f);
  each_lanes(
      n,
      [&](std::size_t i) {
        const Lanes d = load(x + i) - shift;
        squares = fma(d, d, squares);
      },
      [&](std::size_t i, std::size_t rest) {  // What fills up lies at the mean.
        const Lanes d = load_first(x + i, rest, mean) - shift;
        squares = fma(d, d, squares);
      });
  return {mean, 1.0f / __builtin_sqrtf(sum_of(squares) / count + epsilon)};
}

void norm(NormKind kind, float epsilon, const float* x, const float* weight, const float* bias, float* y,
          std::size_t n) {
  const Moments m = moments(kind, epsilon, x, n);
  const Lanes shift = all(m.mean), factor = all(m.scale);
  const auto value = [&](auto at) {
    Lanes r = (at(x) - shift) * factor;
    if (weight != nullptr) r = r * at(weight);
    if (bias != nullptr) r = r + at(bias);
    return r;
  };
  each_lanes(
      n, [&](std::size_t i) { store(y + i, value([&](const float* p) { return load(p + i); })); },
      [&](std::size_t i, std::size_t rest) {
        store_first(y + i, rest, value([&](const float* p) { return load_first(p + i, rest, 0); }));
      });
}

void norm_grad(NormKind kind, float epsilon, const float* x, const float* weight, const float* dy, float* dx,
               float* dweight, float* dbias, std::size_t n) {
  const Moments m = moments(kind, epsilon, x, n);
  const float count = static_cast<float>(n);
  const Lanes shift = all(m.mean), factor = all(m.scale);
  const auto scaled = [&](auto at) { return weight != nullptr ? at(weight) * at(dy) : at(dy); };
  const float dot_mean =
      sum_over(n, [&](auto at, const Lanes& sum) { return fma(scaled(at), (at(x) - shift) * factor, sum); }) /
      count;
  float sum_mean = 0;
  if (kind == NormKind::kLayer) {
    sum_mean = sum_over(n, [&](auto at, const Lanes& sum) { return sum + scaled(at); }) / count;
  }
  const Lanes along = all(-dot_mean), level = all(sum_mean);
  const auto step = [&](auto at, auto put) {
    const Lanes normed = (at(x) - shift) * factor, g = at(dy);
    const Lanes whole = fma(normed, along, scaled(at) - level);
    if (dweight != nullptr) put(dweight, fma(g, normed, at(dweight)));
    if (dbias != nullptr) put(dbias, g + at(dbias));
    put(dx, factor * whole);
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

void rotate(const float* x1, const float* x2, const float* cosines, const float* sines, float direction,
            float* y1, float* y2, std::size_t n) {
  const Lanes sign = all(direction), zero = all(0.0f);
  const auto step = [&](auto at, auto put) {
    const Lanes a = at(x1), b = at(x2), c = at(cosines), s = at(sines) * sign;
    put(y1, fma(a, c, zero - b * s));
    put(y2, fma(a, s, b * c));
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

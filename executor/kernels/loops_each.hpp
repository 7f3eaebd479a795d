#pragma once
// Going over rows sixteen elements at a time. Part of loops_body.hpp.

#include "executor/kernels/lanes.hpp"

namespace orrery::host {
namespace {

// body(i) for every whole sixteen of n, rest(i, count) for what is left.
template <typename Body, typename Rest>
ORRERY_INLINE void each_lanes(std::size_t n, Body body, Rest rest) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i);
  if (i < n) rest(i, n - i);
}

// y[i] = f(inputs…), element by element.
template <typename F>
ORRERY_INLINE void map(const float* x, float* y, std::size_t n, F f) {
  each_lanes(
      n, [&](std::size_t i) { store(y + i, f(load(x + i))); },
      [&](std::size_t i, std::size_t rest) { store_first(y + i, rest, f(load_first(x + i, rest, 0))); });
}
template <typename F>
ORRERY_INLINE void map(const float* a, const float* b, float* y, std::size_t n, F f) {
  each_lanes(
      n, [&](std::size_t i) { store(y + i, f(load(a + i), load(b + i))); },
      [&](std::size_t i, std::size_t rest) {
        store_first(y + i, rest, f(load_first(a + i, rest, 0), load_first(b + i, rest, 0)));
      });
}

// Σ f(i-th lanes, sum) over n; f gets a loader that fills up with zeros.
template <typename F>
ORRERY_INLINE float sum_over(std::size_t n, F f) {
  Lanes sum = all(0.0f);
  each_lanes(
      n, [&](std::size_t i) { sum = f([&](const float* x) { return load(x + i); }, sum); },
      [&](std::size_t i, std::size_t rest) {
        sum = f([&](const float* x) { return load_first(x + i, rest, 0); }, sum);
      });
  return sum_of(sum);
}

}  // namespace
}  // namespace orrery::host

#pragma once
// The functions behind Loops, for the instructions that ORRERY_ISA names. Included by loops_*.cpp alone.

#include "executor/kernels/lanes.hpp"
#include "executor/kernels/loops.hpp"

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

// One rows × parts block of a tile, in as many registers.
template <std::size_t kRows, std::size_t kColumnParts>
ORRERY_INLINE void tile_block(std::size_t k, const float* a, const float* b, float* c, std::size_t ldc,
                              bool accumulate) {
  Part sum[kRows][kColumnParts];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kColumnParts; ++j) {
      sum[i][j] = accumulate ? part_load(c + i * ldc + j * kPartLanes) : part_all(0.0f);
    }
  }
  for (std::size_t step = 0; step < k; ++step, a += kTileRows, b += kTileColumns) {
    Part column[kColumnParts];
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kColumnParts; ++j) column[j] = part_load(b + j * kPartLanes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
      const Part row = part_all(a[i]);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < kColumnParts; ++j) sum[i][j] = fma(row, column[j], sum[i][j]);
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kColumnParts; ++j) part_store(c + i * ldc + j * kPartLanes, sum[i][j]);
  }
}

void tile(std::size_t k, const float* a, const float* b, float* c, std::size_t ldc, bool accumulate) {
  // AVX-512 has registers for all of it, the others for 4 rows of 2 at a time.
  constexpr std::size_t kRows = kPartLanes == 16 ? 8 : 4, kColumns = 2 * kPartLanes;
  for (std::size_t j = 0; j < kTileColumns; j += kColumns) {
    for (std::size_t i = 0; i < kTileRows; i += kRows) {
      tile_block<kRows, 2>(k, a + i, b + j, c + i * ldc + j, ldc, accumulate);
    }
  }
}

#if ORRERY_ISA > 0 && defined(__AVX2__)
// 8 × 8 with a row stride to [8][panel].
ORRERY_INLINE void transpose_eight(const float* x, std::size_t row_stride, float* out, std::size_t panel) {
  __m256 r[8], s[8];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(x + i * row_stride);
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (std::size_t i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * panel, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * panel, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}
#else
ORRERY_INLINE void transpose_eight(const float* x, std::size_t row_stride, float* out, std::size_t panel) {
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) out[j * panel + i] = x[i * row_stride + j];
  }
}
#endif

void pack(const float* x, std::size_t row_stride, std::size_t k_stride, std::size_t rows, std::size_t k,
          std::size_t panel, float* out) {
  std::size_t eights = 0, whole = 0;  // What went through transposes: that many rows, over that many k.
  if (k_stride == 1) {
    eights = rows / 8 * 8;
    whole = k / 8 * 8;
    for (std::size_t i = 0; i < eights; i += 8) {
      for (std::size_t step = 0; step < whole; step += 8) {
        transpose_eight(x + i * row_stride + step, row_stride, out + step * panel + i, panel);
      }
    }
  } else if (row_stride == 1 && rows == panel) {
    for (std::size_t step = 0; step < k; ++step) {
      for (std::size_t i = 0; i < panel; ++i) out[step * panel + i] = x[step * k_stride + i];
    }
    return;
  }
  for (std::size_t step = 0; step < k; ++step) {
    for (std::size_t i = step < whole ? eights : 0; i < panel; ++i) {
      out[step * panel + i] = i < rows ? x[i * row_stride + step * k_stride] : 0.0f;
    }
  }
}

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

// --- norms ---

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

// --- activations ---

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

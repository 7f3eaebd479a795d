#pragma once
// The inner loops of the kernels, once per set of vector instructions, all with the same bits. Sums run in
// sixteen lanes (element i in lane i mod 16, then halves of the lanes onto each other) or as one chain of
// fused multiply-adds, as said.

#include <cstddef>
#include <cstdint>

#include "executor/kernels/isa.hpp"
#include "model/graph.hpp"

namespace orrery::host {

// Rows and columns of the tile that one call of Loops::tile makes.
inline constexpr std::size_t kTileRows = 8, kTileColumns = 32;

struct SoftmaxRow {
  const std::int32_t* positions = nullptr;  // Of each key.
  std::int32_t low = 0, high = 0;           // Keys at these positions and between them count.
  float scale = 1, cap = 0;  // Scores become scale · x, then cap · tanh(· / cap) unless cap is 0.
};

// How AdamW treats every element; see optimizer.hpp.
struct AdamWFactors {
  float gradient_scale = 1, beta1 = 0, one_minus_beta1 = 1, beta2 = 0, one_minus_beta2 = 1;
  float step_size = 0;          // Learning rate / (1 − β1^t).
  float root_scale = 1;         // 1 / √(1 − β2^t).
  float epsilon = 0, keep = 1;  // keep: 1 − learning rate · weight decay.
};

struct Loops {
  // c[8 × 32] (row stride ldc) = or += a · b with a as [k][8] and b as [k][32]: per element one chain over k.
  void (*tile)(std::size_t k, const float* a, const float* b, float* c, std::size_t ldc, bool accumulate);
  // x[rows × k] with these strides to [k][panel], rows beyond being 0. rows <= panel; panel a multiple of 8.
  void (*pack)(const float* x, std::size_t row_stride, std::size_t k_stride, std::size_t rows, std::size_t k,
               std::size_t panel, float* out);

  void (*add)(const float* a, const float* b, float* y, std::size_t n);                // y = a + b
  void (*scale)(float a, const float* x, float* y, std::size_t n);                     // y = a · x
  void (*multiply)(float a, const float* x, const float* z, float* y, std::size_t n);  // y = (a · x) · z
  void (*add_scaled)(float a, const float* x, float* y, std::size_t n);                // y = fma(a, x, y)
  float (*dot)(const float* a, const float* b, std::size_t n);  // Lanes of multiply-adds.
  void (*exp)(const float* x, float* y, std::size_t n);

  // As activate() and slope() of the reference. `limit`: of those that have one.
  void (*unary)(Activation kind, float limit, const float* x, float* y, std::size_t n);
  void (*unary_grad)(Activation kind, float limit, const float* x, const float* dy, float* dx, std::size_t n);
  void (*gated)(Activation kind, float limit, const float* gate, const float* up, float* y, std::size_t n);
  void (*gated_grad)(Activation kind, float limit, const float* gate, const float* up, const float* dy,
                     float* dgate, float* dup, std::size_t n);

  // One row of a norm. weight, bias, dweight, dbias: may be null; dweight and dbias are added into.
  void (*norm)(NormKind kind, float epsilon, const float* x, const float* weight, const float* bias, float* y,
               std::size_t n);
  void (*norm_grad)(NormKind kind, float epsilon, const float* x, const float* weight, const float* dy,
                    float* dx, float* dweight, float* dbias, std::size_t n);
  // y1 = x1 · c − x2 · s, y2 = x1 · s + x2 · c, s times `direction`.
  void (*rotate)(const float* x1, const float* x2, const float* cosines, const float* sines, float direction,
                 float* y1, float* y2, std::size_t n);

  float (*maximum)(const float* x, std::size_t n);                 // −∞ of none.
  float (*sum_exp)(const float* x, float maximum, std::size_t n);  // Σ e^(x − maximum)
  void (*softmax_grad)(const float* x, float log_sum, float weight, float* y,
                       std::size_t n);  // weight·e^(x−lse)

  // Scores to e^(score − maximum), or 0 where a key doesn't count. Returns their sum; `maximum` is the larger
  // of what it was and the scores'.
  float (*softmax)(const SoftmaxRow& row, float* x, std::size_t n, float* maximum);
  // Scores to probabilities e^(score − log_sum) in place, and dp (their gradient) to the gradient of the
  // scaled and capped q · k: p · (dp − mean) · (1 − (score / cap)²) · scale.
  void (*softmax_back)(const SoftmaxRow& row, float log_sum, float mean, float* x, float* dp, std::size_t n);

  // Master weights, moments; see optimizer.hpp.
  void (*adamw)(const AdamWFactors& factors, const float* gradient, float* weights, float* m, float* v,
                std::size_t n);
};

// REQUIRES: available(isa).
const Loops& loops(Isa isa);

}  // namespace orrery::host

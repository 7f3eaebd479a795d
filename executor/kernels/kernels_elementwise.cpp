// Activations, gates, sums, dropout.

#include <cmath>

#include "executor/kernels/kernel_op.hpp"

namespace orrery::host {

void KernelOp::elementwise() {
  const Activation kind = op_.attributes.activation;
  const float limit = static_cast<float>(op_.attributes.limit);
  const std::size_t n = out_count(0);
  switch (op_.kind) {
    case OpKind::kUnary: return loop_.unary(kind, limit, in(0), out(0), n);
    case OpKind::kUnaryGrad: return loop_.unary_grad(kind, limit, in(0), in(1), out(0), n);
    case OpKind::kGated: return loop_.gated(kind, limit, in(0), in(1), out(0), n);
    case OpKind::kGatedGrad: return loop_.gated_grad(kind, limit, in(0), in(1), in(2), out(0), out(1), n);
    case OpKind::kScale: return loop_.scale(static_cast<float>(op_.attributes.scale), in(0), out(0), n);
    case OpKind::kAdd: return loop_.add(in(0), in(1), out(0), n);
    case OpKind::kDropoutGrad:
      return loop_.multiply(static_cast<float>(1 / (1 - op_.attributes.rate)), in(0), in(1), out(0), n);
    default: assert(false && "every other kind has its own loops");
  }
}

// As the reference has it: all but every third element of a row are kept, another third in each position.
void KernelOp::dropout() {
  const std::size_t width = last(0), sequence = size(in_shape(0)[1]);
  const float keep = static_cast<float>(1 / (1 - op_.attributes.rate));
  for (std::size_t row = 0; row * width < count(0); ++row) {
    float* mask = out(1) + row * width;
    // Element i is dropped where (position + i) mod 3 is 1.
    const auto first = static_cast<std::size_t>(4 - position(row % sequence) % 3) % 3;
    std::fill_n(mask, width, 1.0f);
    for (std::size_t i = first; i < width; i += 3) mask[i] = 0;
  }
  loop_.multiply(keep, in(0), out(1), out(0), count(0));
}

void KernelOp::row_gate() {
  const std::size_t n = last(1), rows = count(0);
  float* open = scratch_.take<float>(rows);
  loop_.scale(-1, in(0), open, rows);
  loop_.exp(open, open, rows);
  for (std::size_t row = 0; row < rows; ++row) {
    open[row] = 1 / (1 + open[row]);
    const float* x = in(1) + row * n;
    if (op_.kind == OpKind::kRowGate) {
      loop_.scale(open[row], x, out(0) + row * n, n);
      continue;
    }
    const float* dy = in(2) + row * n;
    out(0)[row] = open[row] * (1 - open[row]) * loop_.dot(x, dy, n);
    loop_.scale(open[row], dy, out(1) + row * n, n);
  }
}

}  // namespace orrery::host

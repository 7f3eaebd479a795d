// Products over whatever dimensions two operands share, as products of matrices.

#include <algorithm>

#include "executor/kernels/gemm.hpp"
#include "executor/kernels/kernel_op.hpp"
#include "executor/kernels/product_shape.hpp"

namespace orrery::host {

void KernelOp::product(const Operand& first, const Operand& second, const Operand& result, bool accumulate) {
  const auto [batch, m, n, k] = product_shape(view_.sizes, first.shape, second.shape, result.shape);
  // Rows of the result are contiguous along n; where they are along m, its transpose is made.
  const bool turned = m.strides[2] == 1 && m.size > 1;
  for (std::size_t i = 0; i < batch.size; ++i) {
    const Matrix a = {first.values + i * batch.strides[0], m.strides[0], k.strides[0]};
    const Matrix b = {second.values + i * batch.strides[1], k.strides[1], n.strides[1]};
    float* c = result.values + i * batch.strides[2];
    if (turned) {
      gemm(n.size, m.size, k.size, transposed(b), transposed(a), c, n.strides[2], accumulate, workspace_);
    } else {
      gemm(m.size, n.size, k.size, a, b, c, m.strides[2], accumulate, workspace_);
    }
  }
}

// y[batch, rows, bias] += bias[batch, bias].
void KernelOp::add_bias(const float* bias, const Shape& bias_shape, std::size_t output) {
  const bool batched = !bias_shape.empty() && bias_shape[0] == out_shape(output)[0];
  std::size_t width = 1;
  for (const DimId dim : bias_shape) width *= size(dim);
  const std::size_t batch = batched ? size(bias_shape[0]) : 1;
  width /= batch;
  const std::size_t rows = out_count(output) / width;
  for (std::size_t row = 0; row < rows; ++row) {
    float* y = out(output) + row * width;
    loop_.add(y, bias + row / (rows / batch) * width, y, width);
  }
}

void KernelOp::bias_gradient(std::size_t input, std::size_t output) {
  const Shape& bias_shape = out_shape(output);
  const bool batched = !bias_shape.empty() && bias_shape[0] == in_shape(input)[0];
  const std::size_t batch = batched ? size(bias_shape[0]) : 1;
  const std::size_t width = out_count(output) / batch, rows = count(input) / width;
  float* sums = cleared(output);
  for (std::size_t row = 0; row < rows; ++row) {
    float* sum = sums + row / (rows / batch) * width;
    loop_.add(sum, in(input) + row * width, sum, width);
  }
}

void KernelOp::matmul() {
  // Products only read what they get from here.
  const auto input = [&](std::size_t i) { return Operand{const_cast<float*>(in(i)), in_shape(i)}; };
  const auto output = [&](std::size_t i) { return Operand{out(i), out_shape(i)}; };
  const bool bias = op_.attributes.bias;
  if (op_.kind == OpKind::kMatmul) {
    const std::size_t n = op_.outputs.size();
    for (std::size_t i = 0; i < n; ++i) {
      product(input(0), input(1 + i), output(i), false);
      const std::size_t at = 1 + n + i;
      if (bias && has_data(at)) add_bias(in(at), in_shape(at), i);
    }
  } else if (op_.kind == OpKind::kMatmulGradInput) {
    const std::size_t n = op_.inputs.size() / 2;
    for (std::size_t i = 0; i < n; ++i) product(input(i), input(n + i), output(0), i > 0);
  } else {
    const std::size_t n = op_.inputs.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
      product(input(0), input(1 + i), output(i), adds_into(i));
      if (bias) bias_gradient(1 + i, n + i);
    }
  }
}

}  // namespace orrery::host

#include <algorithm>
#include <cassert>

#include "executor/device/op_lowering.hpp"
#include "executor/kernels/product_shape.hpp"

namespace orrery::device {

// ---- Products.

void OpLowering::matmul() {
  const bool bias = op_.attributes.bias;
  if (op_.kind == OpKind::kMatmul) {
    const std::size_t n = op_.outputs.size();
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t b = 1 + n + i;
      const bool has_bias = bias && run_.inputs[b].data != nullptr;
      product(lying_in(0), in_shape(0), lying_in(1 + i), in_shape(1 + i), lying_out(i), out_shape(i),
              in_or_none(has_bias, b), false);
    }
  } else if (op_.kind == OpKind::kMatmulGradInput) {
    const std::size_t n = op_.inputs.size() / 2;
    for (std::size_t i = 0; i < n; ++i) {
      product(lying_in(i), in_shape(i), lying_in(n + i), in_shape(n + i), lying_out(0), out_shape(0), {},
              i > 0);
    }
  } else {
    const std::size_t n = op_.inputs.size() - 1;
    for (std::size_t i = 0; i < n; ++i) {
      product(lying_in(0), in_shape(0), lying_in(1 + i), in_shape(1 + i), lying_out(i), out_shape(i), {},
              adds_into(i));
    }
    for (std::size_t i = 0; bias && i < n; ++i) bias_gradient(1 + i, n + i);
  }
}

// One stride of a group is 1: the other is how far its rows stand apart.
Matrix matrix(const Array& array, std::size_t row_stride, std::size_t column_stride,
              std::size_t batch_stride) {
  assert(row_stride == 1 || column_stride == 1);
  const bool turned = column_stride != 1;
  return {array, static_cast<std::int64_t>(turned ? column_stride : row_stride),
          static_cast<std::int64_t>(batch_stride), turned};
}

void OpLowering::product(const Lying& first, const Shape& first_shape, const Lying& second,
                         const Shape& second_shape, const Lying& result, const Shape& result_shape,
                         const Array& bias, bool accumulate) {
  auto [batch, m, n, k] = host::product_shape(view_.sizes, first_shape, second_shape, result_shape);
  // Packed, rows stand further apart; what goes along them stays.
  const Lying* const operands[3] = {&first, &second, &result};
  for (std::size_t t = 0; t < 3; ++t) {
    if (operands[t]->stride == 0) continue;
    const auto columns = static_cast<std::size_t>(operands[t]->columns);
    for (host::ProductGroup* const group : {&m, &n, &k}) {
      std::size_t& stride = group->strides[t];
      if (stride >= columns) stride = stride / columns * static_cast<std::size_t>(operands[t]->stride);
    }
  }
  Gemm gemm;
  gemm.batch = static_cast<std::int64_t>(batch.size);
  gemm.k = static_cast<std::int64_t>(k.size);
  gemm.accumulate = accumulate;
  // Rows of the result are contiguous along n; where they are along m, its transpose is made.
  const bool turned = m.strides[2] == 1 && m.size > 1;
  const std::size_t step[3] = {batch.strides[0], batch.strides[1], batch.strides[2]};
  gemm.m = static_cast<std::int64_t>(turned ? n.size : m.size);
  gemm.n = static_cast<std::int64_t>(turned ? m.size : n.size);
  if (turned) {
    gemm.a = matrix(second.array, n.strides[1], k.strides[1], step[1]);
    gemm.b = matrix(first.array, k.strides[0], m.strides[0], step[0]);
    gemm.d = matrix(result.array, n.strides[2], 1, step[2]);
  } else {
    gemm.a = matrix(first.array, m.strides[0], k.strides[0], step[0]);
    gemm.b = matrix(second.array, k.strides[1], n.strides[1], step[1]);
    gemm.d = matrix(result.array, m.strides[2], 1, step[2]);
  }
  if (gemm.batch == 1) gemm.a.batch_stride = gemm.b.batch_stride = gemm.d.batch_stride = 0;
  if (!bias) return emit(gemm);
  const std::int64_t width = size_bytes(bias.dtype);
  if (gemm.batch == 1) {
    gemm.bias = bias;
    return emit(gemm);
  }
  // A bias of each product of the batch.
  const std::int64_t products = gemm.batch;
  gemm.batch = 1;
  for (std::int64_t i = 0; i < products; ++i) {
    Gemm one = gemm;
    one.a.array.data += i * gemm.a.batch_stride * size_bytes(gemm.a.array.dtype);
    one.b.array.data += i * gemm.b.batch_stride * size_bytes(gemm.b.array.dtype);
    one.d.array.data += i * gemm.d.batch_stride * size_bytes(gemm.d.array.dtype);
    one.a.batch_stride = one.b.batch_stride = one.d.batch_stride = 0;
    one.bias = {bias.data + i * gemm.n * width, bias.dtype};
    emit(one);
  }
}

void OpLowering::bias_gradient(std::size_t input, std::size_t output) {
  const Shape& bias = out_shape(output);
  const bool batched = !bias.empty() && bias[0] == in_shape(input)[0];
  const std::int64_t batch = batched ? size(bias[0]) : 1;
  const Lying x = lying_in(input);
  ColumnSum sum;
  sum.x_stride = x.stride;
  sum.width = out_count(output) / batch;
  sum.rows = count(input) / sum.width / batch;
  sum.accumulate = adds_into(output);
  for (std::int64_t i = 0; i < batch; ++i) {
    sum.x = x.array, sum.to = out(output);
    sum.x.data += i * sum.rows * sum.width * size_bytes(sum.x.dtype);
    sum.to.data += i * sum.width * size_bytes(sum.to.dtype);
    emit(sum);
  }
}

}  // namespace orrery::device

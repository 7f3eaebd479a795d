// What goes row by row: tables, norms, rotations, heads side by side.

#include <algorithm>
#include <cmath>

#include "executor/kernels/kernel_op.hpp"

namespace orrery::host {

void KernelOp::embedding() {
  const bool backward = op_.kind == OpKind::kEmbeddingGrad;
  const std::int64_t* tokens = ids(0);
  const std::size_t width = backward ? last(1) : size(out_shape(0).back());
  float* result = cleared(0);
  const auto entries = static_cast<std::int64_t>((backward ? out_count(0) : count(1)) / width);
  for (std::size_t token = 0; token < count(0); ++token) {
    const std::int64_t entry = tokens[token] - view_.vocab_begin;
    if (entry < 0 || entry >= entries) continue;
    const std::size_t row = static_cast<std::size_t>(entry) * width;
    if (backward) {
      loop_.add(result + row, in(1) + token * width, result + row, width);
    } else {
      std::copy_n(in(1) + row, width, result + token * width);
    }
  }
}

// Position p uses row p of the table.
void KernelOp::positions() {
  const std::size_t width = last(0), sequence = size(in_shape(0)[1]);
  const bool backward = op_.kind == OpKind::kAddPositionsGrad;
  float* result = backward ? cleared(0) : out(0);
  for (std::size_t row = 0; row * width < count(0); ++row) {
    const std::size_t entry = static_cast<std::size_t>(position(row % sequence)) * width;
    const float* x = in(0) + row * width;
    if (backward) {
      loop_.add(result + entry, x, result + entry, width);
    } else {
      loop_.add(x, in(1) + entry, result + row * width, width);
    }
  }
}

// Rows are as wide as the weight, or the last dimension.
void KernelOp::norm() {
  const OpAttributes& attributes = op_.attributes;
  const std::size_t n = attributes.weight ? count(1) : last(0);
  for (std::size_t row = 0; row < count(0); row += n) {
    loop_.norm(attributes.norm, static_cast<float>(attributes.epsilon), in(0) + row,
               attributes.weight ? in(1) : nullptr, attributes.bias ? in(2) : nullptr, out(0) + row, n);
  }
}

void KernelOp::norm_grad() {
  const OpAttributes& attributes = op_.attributes;
  const bool weight = attributes.weight;
  const std::size_t n = weight ? count(1) : last(0);
  float* dweight = weight ? cleared(1) : nullptr;
  float* dbias = attributes.bias ? cleared(2) : nullptr;
  for (std::size_t row = 0; row < count(0); row += n) {
    loop_.norm_grad(attributes.norm, static_cast<float>(attributes.epsilon), in(0) + row,
                    weight ? in(1) : nullptr, in(weight ? 2 : 1) + row, out(0) + row, dweight, dbias, n);
  }
}

// Rotates the first part of each head, dimension i with i + rotated/2; −1 rotates back.
void KernelOp::rope(float direction) {
  const std::size_t sequence = size(in_shape(0)[1]);
  std::int64_t* at = scratch_.take<std::int64_t>(sequence);
  for (std::size_t i = 0; i < sequence; ++i) at[i] = position(i);
  for (std::size_t tensor = 0; tensor < op_.inputs.size(); ++tensor) {
    const std::size_t d = size(in_shape(tensor)[3]), heads = size(in_shape(tensor)[2]);
    const auto rotated =
        static_cast<std::size_t>(std::llround(op_.attributes.rotary_fraction * static_cast<double>(d)));
    const std::size_t pairs = rotated / 2;
    const RopeTable& table = workspace_.rope_table(op_.attributes.rope_theta, pairs, {at, sequence});
    for (std::size_t head = 0; head * d < count(tensor); ++head) {
      const std::size_t turn = head / heads % sequence * pairs;
      const float* x = in(tensor) + head * d;
      float* y = out(tensor) + head * d;
      loop_.rotate(x, x + pairs, table.cosines.data() + turn, table.sines.data() + turn, direction, y,
                   y + pairs, pairs);
      std::copy(x + 2 * pairs, x + d, y + 2 * pairs);
    }
  }
}

// Parts of each head side by side; the second has its own heads or one for all.
void KernelOp::head_concat() {
  const bool backward = op_.kind == OpKind::kHeadConcatGrad;
  const Shape& x_shape = backward ? out_shape(0) : in_shape(0);
  const Shape& y_shape = backward ? out_shape(1) : in_shape(1);
  const std::size_t c = size(x_shape[3]), e = size(y_shape[3]), heads = size(x_shape[2]);
  const std::size_t share = heads / size(y_shape[2]);
  const std::size_t all_heads = (backward ? count(0) : out_count(0)) / (c + e);
  float* shared = backward ? cleared(1) : nullptr;
  for (std::size_t head = 0; head < all_heads; ++head) {
    const std::size_t x = head * c, y = head / share * e, z = head * (c + e);
    if (backward) {
      std::copy_n(in(0) + z, c, out(0) + x);
      loop_.add(shared + y, in(0) + z + c, shared + y, e);
    } else {
      std::copy_n(in(0) + x, c, out(0) + z);
      std::copy_n(in(1) + y, e, out(0) + z + c);
    }
  }
}

}  // namespace orrery::host

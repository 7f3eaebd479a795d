#include "executor/device/join_packed.hpp"

#include <algorithm>

namespace orrery::device {
namespace {

bool same_place(const Matrix& a, const Matrix& b) {
  return a.array.data == b.array.data && a.array.dtype == b.array.dtype && a.stride == b.stride &&
         a.turned == b.turned;
}

// Whether `second` begins where a row of `first` ends after so many elements: both are parts of wider rows.
bool beside(const Matrix& first, std::int64_t elements, const Matrix& second, std::int64_t more) {
  return first.array.dtype == second.array.dtype && first.stride == second.stride &&
         first.turned == second.turned && first.stride >= elements + more &&
         second.array.data == first.array.data + elements * size_bytes(first.array.dtype);
}

// D1 = A · B1, D2 = A · B2.
bool join_columns(Gemm& first, const Gemm& second) {
  if (first.m != second.m || first.k != second.k || first.accumulate != second.accumulate) return false;
  if (!same_place(first.a, second.a) || first.b.turned || first.d.turned) return false;
  if (!beside(first.b, first.n, second.b, second.n) || !beside(first.d, first.n, second.d, second.n))
    return false;
  const bool bias = static_cast<bool>(first.bias);
  if (bias != static_cast<bool>(second.bias)) return false;
  if (bias && (first.bias.dtype != second.bias.dtype ||
               second.bias.data != first.bias.data + first.n * size_bytes(first.bias.dtype)))
    return false;
  first.n += second.n;
  return true;
}

// D = A1 · B1, then D += A2 · B2: rows of A go on, and those of the turned B.
bool join_sums(Gemm& first, const Gemm& second) {
  if (first.m != second.m || first.n != second.n || !second.accumulate || second.bias) return false;
  if (!same_place(first.d, second.d) || first.a.turned || !first.b.turned) return false;
  if (!beside(first.a, first.k, second.a, second.k) || !beside(first.b, first.k, second.b, second.k))
    return false;
  first.k += second.k;
  return true;
}

bool join_heads(Rope& first, const Rope& second) {
  const std::int64_t bytes = first.heads * first.width * size_bytes(first.x.dtype);
  const bool in_place = first.x.data == first.y.data && second.x.data == second.y.data;
  const bool alike = first.batch == second.batch && first.sequence == second.sequence &&
                     first.width == second.width && first.rotated == second.rotated &&
                     first.theta == second.theta && first.back == second.back &&
                     first.positions == second.positions && first.x.dtype == second.x.dtype &&
                     first.x_stride == second.x_stride && first.y_stride == second.y_stride &&
                     first.x_stride == first.y_stride;
  if (!in_place || !alike || second.x.data != first.x.data + bytes) return false;
  if (first.x_stride < (first.heads + second.heads) * first.width) return false;
  first.heads += second.heads;
  return true;
}

bool join(Launch& first, const Launch& second) {
  if (auto* const gemm = std::get_if<Gemm>(&first)) {
    const auto* const next = std::get_if<Gemm>(&second);
    if (next == nullptr || gemm->batch != 1 || next->batch != 1) return false;
    return join_columns(*gemm, *next) || join_sums(*gemm, *next);
  }
  auto* const rope = std::get_if<Rope>(&first);
  const auto* const next = std::get_if<Rope>(&second);
  return rope != nullptr && next != nullptr && join_heads(*rope, *next);
}

// Whether the launch makes all that the rotation reads, and from now on makes it where the result belongs.
bool makes_in_place(Launch& launch, const Rope& rope) {
  const std::byte* const data = rope.x.data;
  if (auto* const gemm = std::get_if<Gemm>(&launch); gemm != nullptr && gemm->d.array.data == data) {
    const std::int64_t width = rope.heads * rope.width;
    if (gemm->batch != 1 || gemm->accumulate || gemm->n != width || gemm->d.stride != width ||
        gemm->m != rope.batch * rope.sequence)
      return false;
    gemm->d.array = rope.y;
    if (rope.y_stride != 0) gemm->d.stride = rope.y_stride;
    return true;
  }
  auto* const attention = std::get_if<AttentionGrad>(&launch);
  if (attention == nullptr) return false;
  HeadStrides& strides = attention->shape.strides;
  if (attention->dq.data == data && strides.dq == 0) {
    attention->dq = rope.y, strides.dq = rope.y_stride;
    return true;
  }
  if (attention->dk.data == data && strides.dk == 0) {
    attention->dk = rope.y, strides.dk = rope.y_stride;
    return true;
  }
  return false;
}

void rotate_in_place(std::vector<Launch>& launches, const SeenNowhereElse& private_to_it) {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    auto* const rope = std::get_if<Rope>(&launches[i]);
    if (rope == nullptr || rope->x_stride != 0 || !private_to_it(rope->x)) continue;
    for (std::size_t j = i; j-- > 0;) {
      if (!makes_in_place(launches[j], *rope)) continue;
      rope->x = rope->y, rope->x_stride = rope->y_stride;
      break;
    }
  }
}

}  // namespace

void join_packed(std::vector<Launch>& launches, const SeenNowhereElse& private_to_it) {
  rotate_in_place(launches, private_to_it);
  std::vector<Launch> joined;
  for (Launch& launch : launches) {
    if (joined.empty() || !join(joined.back(), launch)) joined.push_back(std::move(launch));
  }
  launches = std::move(joined);
}

}  // namespace orrery::device

#include "executor/device/traffic.hpp"

#include <initializer_list>

namespace orrery::device {
namespace {

using Bytes = std::optional<std::int64_t>;

std::int64_t bytes(std::int64_t elements, std::initializer_list<Array> arrays) {
  std::int64_t total = 0;
  for (const Array& array : arrays) total += array ? elements * size_bytes(array.dtype) : 0;
  return total;
}
// What is read and written, or written alone.
std::int64_t sums(std::int64_t elements, bool accumulate, std::initializer_list<Array> arrays) {
  return (accumulate ? 2 : 1) * bytes(elements, arrays);
}
constexpr std::int64_t kFp32 = size_bytes(DType::kFp32);

Bytes of(const Gemm&) { return {}; }
Bytes of(const Attention&) { return {}; }
Bytes of(const AttentionGrad&) { return {}; }
Bytes of(const ColumnSum& sum) {
  return bytes(sum.rows * sum.width, {sum.x}) + sums(sum.width, sum.accumulate, {sum.to});
}
Bytes of(const AttentionMerge& merge) {
  const std::int64_t rows = merge.batch * merge.queries * merge.heads;
  return bytes(rows * merge.e, {merge.o, merge.o_block, merge.o_to}) + 3 * rows * kFp32;
}
Bytes of(const Norm& norm) {
  return bytes(norm.rows * norm.width, {norm.x, norm.residual, norm.sum, norm.y}) +
         bytes(norm.width, {norm.weight, norm.bias});
}
Bytes of(const NormGrad& norm) {
  return bytes(norm.rows * norm.width, {norm.x, norm.dy, norm.residual, norm.dx}) +
         bytes(norm.width, {norm.weight}) + sums(norm.width, norm.accumulate, {norm.dweight, norm.dbias});
}
Bytes of(const Rope& rope) {
  return bytes(rope.batch * rope.sequence * rope.heads * rope.width, {rope.x, rope.y});
}
Bytes of(const HeadConcat& concat) {
  return bytes(concat.tokens * concat.heads * concat.c, {concat.x}) +
         bytes(concat.tokens * concat.shared * concat.e, {concat.y}) +
         bytes(concat.tokens * concat.heads * (concat.c + concat.e), {concat.z});
}
Bytes of(const Embedding& embedding) {
  return bytes(embedding.tokens * embedding.width, {embedding.table, embedding.y}) +
         bytes(embedding.tokens, {embedding.ids});
}
Bytes of(const EmbeddingGrad& embedding) {
  return bytes(embedding.tokens * embedding.width, {embedding.dy}) +
         sums(embedding.tokens * embedding.width, true, {embedding.table}) +
         bytes(embedding.tokens, {embedding.ids});
}
Bytes of(const AddPositions& add) {
  return bytes(add.batch * add.sequence * add.width, {add.x, add.y}) +
         bytes(add.sequence * add.width, {add.table});
}
Bytes of(const AddPositionsGrad& add) {
  return bytes(add.batch * add.sequence * add.width, {add.dy}) +
         sums(add.sequence * add.width, true, {add.table});
}
Bytes of(const Unary& unary) { return bytes(unary.elements, {unary.x, unary.dy, unary.y}); }
Bytes of(const Gated& gated) { return bytes(gated.elements, {gated.gate, gated.up, gated.y}); }
Bytes of(const GatedGrad& gated) {
  return bytes(gated.elements, {gated.gate, gated.up, gated.dy, gated.dgate, gated.dup});
}
Bytes of(const RowGate& gate) {
  return bytes(gate.rows * gate.width, {gate.x, gate.y}) + bytes(gate.rows, {gate.gate});
}
Bytes of(const RowGateGrad& gate) {
  return bytes(gate.rows * gate.width, {gate.x, gate.dy, gate.dx}) + 2 * bytes(gate.rows, {gate.gate});
}
Bytes of(const AddScaled& add) { return bytes(add.elements, {add.x, add.addend, add.y}); }
Bytes of(const Dropout& dropout) {
  return bytes(dropout.batch * dropout.sequence * dropout.width,
               {dropout.x, dropout.addend, dropout.y, dropout.mask});
}
Bytes of(const DropoutGrad& dropout) {
  return bytes(dropout.elements, {dropout.dy, dropout.mask, dropout.dx});
}
Bytes of(const CrossEntropy& loss) {
  return bytes(loss.tokens * loss.vocab, {loss.logits, loss.dlogits}) + bytes(loss.tokens, {loss.labels}) +
         loss.tokens * kFp32;
}
Bytes of(const CrossEntropyGrad& loss) {
  return bytes(loss.tokens * loss.vocab, {loss.logits, loss.dlogits}) + bytes(loss.tokens, {loss.labels}) +
         loss.tokens * kFp32;
}
Bytes of(const CrossEntropyPart& loss) {
  return bytes(loss.tokens * loss.vocab, {loss.logits}) +
         bytes(loss.tokens, {loss.labels, loss.maximum, loss.sum, loss.label_logit, loss.lse});
}
Bytes of(const Route& route) {
  return bytes(route.tokens * route.experts, {route.logits}) +
         bytes(route.tokens * route.picks_per_token, {route.weights, route.picks});
}
Bytes of(const RouteGrad& route) {
  return bytes(route.tokens * route.experts, {route.logits, route.dlogits}) +
         bytes(route.tokens * route.picks_per_token, {route.picks, route.dweights});
}
template <class Moved>
std::int64_t moved_rows(const Moved& moved) {
  return moved.tokens * moved.picks_per_token * moved.width;
}
Bytes of(const Dispatch& moved) {
  return bytes(moved_rows(moved), {moved.x}) + bytes(moved.experts * moved.slots * moved.width, {moved.rows});
}
Bytes of(const DispatchGrad& moved) {
  return bytes(moved_rows(moved), {moved.drows, moved.x}) + bytes(moved.tokens * moved.width, {moved.dx});
}
Bytes of(const Combine& moved) {
  return bytes(moved_rows(moved), {moved.rows}) + bytes(moved.tokens * moved.width, {moved.y});
}
Bytes of(const CombineGrad& moved) {
  return bytes(moved_rows(moved), {moved.dy, moved.rows}) +
         bytes(moved.experts * moved.slots * moved.width, {moved.drows});
}
// Master weights and moments are read and written; the compute type's weights only written.
Bytes of(const AdamW& update) {
  std::int64_t total = 0;
  for (const UpdateSegment& segment : update.segments) {
    const bool apart = segment.weights.dtype != DType::kFp32;
    total += segment.elements * (6 * kFp32 + size_bytes(segment.gradient.dtype)) +
             (apart ? bytes(segment.elements, {segment.weights}) : 0);
  }
  return total;
}
Bytes of(const SumSquares& sum) {
  std::int64_t total = 0;
  for (const SumPart& part : sum.parts) total += bytes(part.elements, {part.array});
  return total;
}
Bytes of(const Zero& zero) { return zero.bytes; }
Bytes of(const CopyBytes& copy) { return 2 * copy.bytes; }
Bytes of(const CopyRows& copy) { return 2 * copy.rows * copy.row_bytes; }
Bytes of(const Accumulate& add) {
  return bytes(add.elements, {add.from}) + sums(add.elements, true, {add.to});
}
Bytes of(const Convert& convert) { return bytes(convert.elements, {convert.from, convert.to}); }
// The largest element of the matrix has to be known before the first is rounded; a block's is found on the
// chip.
Bytes of(const Quantize& copy) {
  const std::int64_t elements = copy.rows * copy.width;
  const std::int64_t reads = copy.known_largest != nullptr || copy.scales != Fp8Scales::kOne ? 1 : 2;
  const std::int64_t copies = (copy.to != nullptr ? 1 : 0) + (copy.turned != nullptr ? 1 : 0);
  return reads * bytes(elements, {copy.x}) + copies * elements * size_bytes(DType::kFp8) + kFp32;
}
Bytes of(const InitialValues& values) { return bytes(values.elements, {values.to}); }
Bytes of(const HashElements& hash) { return bytes(hash.elements, {hash.from}); }

}  // namespace

std::optional<std::int64_t> memory_bytes(const Launch& launch) {
  return std::visit([](const auto& kind) { return of(kind); }, launch);
}

}  // namespace orrery::device

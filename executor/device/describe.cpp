#include "executor/device/describe.hpp"

#include <fmt/format.h>

#include <numeric>

#include "executor/device/device.hpp"

namespace orrery::device {
namespace {

std::string attention_size(const AttentionShape& shape) {
  std::string text = fmt::format("{}x{}x{}x{}", shape.batch, shape.heads, shape.queries, shape.d);
  if (shape.keys != shape.queries) text += fmt::format(", {} keys", shape.keys);
  if (shape.kv_heads != shape.heads) text += fmt::format(", {} kv heads", shape.kv_heads);
  return text;
}

std::string rows(std::string_view name, std::int64_t count, std::int64_t width) {
  return fmt::format("{} {}x{}", name, count, width);
}

std::string of(const Gemm& gemm) {
  return fmt::format("gemm{} {}x{}x{}{}{}{}", gemm.a.array.dtype == DType::kFp8 ? " fp8" : "", gemm.m, gemm.n,
                     gemm.k, gemm.batch > 1 ? fmt::format(" x {}", gemm.batch) : "",
                     gemm.bias ? " + bias" : "", gemm.accumulate ? ", added" : "");
}
std::string of(const ColumnSum& sum) { return rows("column sum", sum.rows, sum.width); }
std::string of(const Attention& attention) { return "attention " + attention_size(attention.shape); }
std::string of(const AttentionGrad& attention) {
  return "attention gradient " + attention_size(attention.shape);
}
std::string of(const AttentionMerge& merge) {
  return rows("attention merge", merge.batch * merge.queries * merge.heads, merge.e);
}
std::string of(const Norm& norm) {
  return rows("norm", norm.rows, norm.width) + (norm.residual ? " + residual" : "");
}
std::string of(const NormGrad& norm) {
  return rows("norm gradient", norm.rows, norm.width) + (norm.residual ? " + residual" : "") +
         (norm.accumulate ? ", added" : "");
}
std::string of(const Rope& rope) {
  return rows(rope.back ? "rope back" : "rope", rope.batch * rope.sequence * rope.heads, rope.width);
}
std::string of(const HeadConcat& concat) { return rows("head concat", concat.tokens, concat.heads); }
std::string of(const Embedding& embedding) { return rows("embedding", embedding.tokens, embedding.width); }
std::string of(const EmbeddingGrad& embedding) {
  return rows("embedding gradient", embedding.tokens, embedding.width);
}
std::string of(const AddPositions& add) { return rows("positions", add.batch * add.sequence, add.width); }
std::string of(const AddPositionsGrad& add) {
  return rows("positions gradient", add.batch * add.sequence, add.width);
}
std::string of(const Unary& unary) {
  return fmt::format("{} {}", unary.dy ? "activation gradient" : "activation", unary.elements);
}
std::string of(const Gated& gated) { return fmt::format("gated {}", gated.elements); }
std::string of(const GatedGrad& gated) { return fmt::format("gated gradient {}", gated.elements); }
std::string of(const RowGate& gate) { return rows("row gate", gate.rows, gate.width); }
std::string of(const RowGateGrad& gate) { return rows("row gate gradient", gate.rows, gate.width); }
std::string of(const AddScaled& add) {
  return fmt::format("{} {}", add.addend ? "add" : "scale", add.elements);
}
std::string of(const Dropout& dropout) {
  return rows("dropout", dropout.batch * dropout.sequence, dropout.width) +
         (dropout.addend ? " + residual" : "");
}
std::string of(const DropoutGrad& dropout) { return fmt::format("dropout gradient {}", dropout.elements); }
std::string of(const CrossEntropy& loss) {
  return rows("cross entropy", loss.tokens, loss.vocab) + (loss.dlogits ? " + gradient" : "");
}
std::string of(const CrossEntropyGrad& loss) {
  return rows("cross entropy gradient", loss.tokens, loss.vocab);
}
std::string of(const CrossEntropyPart& loss) { return fmt::format("cross entropy part {}", loss.part); }
std::string of(const Route& route) { return rows("route", route.tokens, route.experts); }
std::string of(const RouteGrad& route) { return rows("route gradient", route.tokens, route.experts); }
std::string of(const Dispatch& dispatch) { return rows("dispatch", dispatch.tokens, dispatch.width); }
std::string of(const DispatchGrad& dispatch) {
  return rows("dispatch gradient", dispatch.tokens, dispatch.width);
}
std::string of(const Combine& combine) { return rows("combine", combine.tokens, combine.width); }
std::string of(const CombineGrad& combine) { return rows("combine gradient", combine.tokens, combine.width); }
std::string of(const AdamW& update) {
  const auto add = [](std::int64_t sum, const UpdateSegment& segment) { return sum + segment.elements; };
  return fmt::format("adamw {} in {}",
                     std::accumulate(update.segments.begin(), update.segments.end(), std::int64_t{0}, add),
                     update.segments.size());
}
std::string of(const SumSquares& sum) { return fmt::format("sum of squares in {}", sum.parts.size()); }
std::string of(const Zero& zero) { return fmt::format("zero {} bytes", zero.bytes); }
std::string of(const CopyBytes& copy) { return fmt::format("copy {} bytes", copy.bytes); }
std::string of(const CopyRows& copy) {
  return fmt::format("copy {} rows of {} bytes", copy.rows, copy.row_bytes);
}
std::string of(const Accumulate& add) { return fmt::format("accumulate {}", add.elements); }
std::string of(const Convert& convert) { return fmt::format("convert {}", convert.elements); }
std::string of(const Quantize& copy) {
  const bool twice = copy.to != nullptr && copy.turned != nullptr;
  return rows("quantize", copy.rows, copy.width) +
         (twice                    ? " both ways"
          : copy.turned != nullptr ? " turned"
                                   : "") +
         (copy.e5m2 ? ", e5m2" : "") + (copy.scales != Fp8Scales::kOne ? ", blocks" : "") +
         (copy.known_largest != nullptr ? ", largest known" : "");
}
std::string of(const InitialValues& values) { return fmt::format("initial values {}", values.elements); }
std::string of(const HashElements& hash) { return fmt::format("hash {}", hash.elements); }

}  // namespace

std::string describe(const Launch& launch) {
  return std::visit([](const auto& kind) { return of(kind); }, launch);
}

std::string_view to_string(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce: return "all-reduce";
    case CallKind::kAllGather: return "all-gather";
    case CallKind::kReduceScatter: return "reduce-scatter";
    case CallKind::kBroadcast: return "broadcast";
    case CallKind::kSend: return "send";
    case CallKind::kReceive: return "receive";
  }
  return "";
}

}  // namespace orrery::device

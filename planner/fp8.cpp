#include "planner/fp8.hpp"

#include <algorithm>

namespace orrery {
namespace {

// Copies begin at multiples of this, and so do their scales, which stand behind them
// (executor/device/quantize_products.cpp lays them out so).
constexpr std::int64_t kAlignment = 256;
// Rows of FP8 operands are loaded by 16 bytes.
constexpr std::int64_t kMultiple = 16;

std::int64_t copy_bytes(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

bool of_experts(const Graph& graph, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
    const auto& shape = graph[input].shape;
    return std::any_of(shape.begin(), shape.end(),
                       [&](DimId dim) { return graph[dim].role == DimRole::kExperts; });
  });
}

}  // namespace

std::optional<Fp8Copies> fp8_copies(const Graph& graph, const Plan& plan, const Sharding& sharding, OpId id) {
  const Op& op = graph[id];
  const bool forward = op.kind == OpKind::kMatmul;
  if (plan.fp8 == Fp8::kNone || (!forward && op.kind != OpKind::kMatmulGradInput)) return std::nullopt;
  const bool in_layer = op.block > 0 && op.block < graph.block_count() - 1;
  if (!in_layer || of_experts(graph, op)) return std::nullopt;
  Fp8Copies copies;
  const std::size_t products = forward ? op.outputs.size() : op.inputs.size() / 2;
  for (std::size_t i = 0; i < products; ++i) {
    const Contraction product = contraction(graph, op, i, sharding.sizes(id));
    if (product.batch != 1) return std::nullopt;
    for (const std::int64_t size : {product.m, product.n, product.k}) {
      if (size % kMultiple != 0) return std::nullopt;
    }
    // A forward's input is the same for all of its weights.
    const std::int64_t input = forward && i > 0 ? 0 : product.m * product.k;
    const std::int64_t weight = product.k * product.n;
    copies.elements += input + weight;
    copies.bytes += (input > 0 ? copy_bytes(input) : 0) + copy_bytes(weight);
  }
  return copies;
}

}  // namespace orrery

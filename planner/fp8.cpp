#include "planner/fp8.hpp"

#include <algorithm>
#include <utility>

#include "model/fp8_scales.hpp"

namespace orrery {
namespace {

// Copies begin at multiples of this, and so do their scales, which stand behind them
// (executor/device/quantize_products.cpp lays them out so).
constexpr std::int64_t kAlignment = 256;
// Rows of FP8 operands are loaded by 16 bytes.
constexpr std::int64_t kMultiple = 16;

bool of_experts(const Graph& graph, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
    const auto& shape = graph[input].shape;
    return std::any_of(shape.begin(), shape.end(),
                       [&](DimId dim) { return graph[dim].role == DimRole::kExperts; });
  });
}

bool is_product(OpKind kind) {
  return kind == OpKind::kMatmul || kind == OpKind::kMatmulGradInput || kind == OpKind::kMatmulGradWeight;
}

// The inputs that are matrices, biases apart, and how many products are made of them.
struct Matrices {
  std::size_t products = 0, inputs = 0;
};
Matrices matrices_of(const Op& op) {
  switch (op.kind) {
    case OpKind::kMatmul: return {op.outputs.size(), 1 + op.outputs.size()};
    case OpKind::kMatmulGradInput: return {op.inputs.size() / 2, op.inputs.size()};
    default: return {op.inputs.size() - 1, op.inputs.size()};
  }
}

bool fits(const Contraction& product) {
  return product.batch == 1 && product.m % kMultiple == 0 && product.n % kMultiple == 0 &&
         product.k % kMultiple == 0;
}

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// By sizes of the product that make up the operand, whichever of them is summed over.
std::int64_t block_scales(const Contraction& product, std::int64_t elements, bool of_weights) {
  const Fp8Scales scales = of_weights ? Fp8Scales::kSquares : Fp8Scales::kRows;
  std::int64_t most = 1;
  for (const auto& [x, y] :
       {std::pair(product.m, product.k), std::pair(product.k, product.n), std::pair(product.m, product.n)}) {
    if (x * y == elements)
      most = std::max({most, fp8_scale_count(scales, x, y), fp8_scale_count(scales, y, x)});
  }
  return most;
}

}  // namespace

std::vector<Fp8Operand> fp8_operands(const Graph& graph, const Plan& plan, const Sharding& sharding,
                                     OpId id) {
  const Op& op = graph[id];
  const bool in_layer = op.block > 0 && op.block < graph.block_count() - 1;
  if (plan.fp8 == Fp8::kNone || !is_product(op.kind) || !in_layer || of_experts(graph, op)) return {};
  const Matrices matrices = matrices_of(op);
  for (std::size_t i = 0; i < matrices.products; ++i) {
    if (!fits(contraction(graph, op, i, sharding.sizes(id)))) return {};
  }
  std::vector<Fp8Operand> operands;
  for (std::size_t i = 0; i < matrices.inputs; ++i) {
    Fp8Operand operand{op.inputs[i], element_count(graph, op.inputs[i], sharding.sizes(id))};
    if (plan.fp8 == Fp8::kBlock) {
      const bool of_weights = graph[operand.tensor].kind == TensorKind::kParameter;
      for (std::size_t p = 0; p < matrices.products; ++p) {
        const Contraction product = contraction(graph, op, p, sharding.sizes(id));
        operand.scales = std::max(operand.scales, block_scales(product, operand.elements, of_weights));
      }
    }
    operands.push_back(operand);
  }
  return operands;
}

Fp8Arithmetic fp8_arithmetic(const Plan& plan, OpKind kind) {
  if (plan.fp8 == Fp8::kBlock) {
    return {.scaling = kind == OpKind::kMatmulGradWeight ? Fp8Scaling::kRows : Fp8Scaling::kSquares};
  }
  const bool gradient = kind != OpKind::kMatmul;
  return {.e5m2 = gradient && plan.fp8_format == Fp8Format::kHybrid,
          .fast = plan.fp8_fast_sums == Fp8FastSums::kAll ||
                  (plan.fp8_fast_sums == Fp8FastSums::kForward && !gradient)};
}

std::int64_t fp8_copy_bytes(const Fp8Operand& operand) {
  return aligned(operand.elements) + aligned(operand.scales * size_bytes(DType::kFp32));
}

}  // namespace orrery

#pragma once
// Which products of a plan run in FP8, and what that takes.
//
// All of a layer's products do: their operands are copied to FP8 before the product, as E4M3 or, gradients of
// the hybrid format, E5M2 (Micikevicius et al. 2022). Fp8::kTensor: each has one scale that follows from its
// own largest element. Fp8::kBlock (DeepSeek-V3, section 3.3): one for each 128 elements along the dimension
// that is summed over, and one for each 128 × 128 of weights. Experts, their routers, and what is outside of
// the layers stay in the compute type.

#include <cstdint>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/plan.hpp"
#include "planner/sharding.hpp"

namespace orrery {

// A matrix that is copied for an op's products.
struct Fp8Operand {
  TensorId tensor;
  std::int64_t elements = 0;  // On one rank.
  std::int64_t scales = 1;    // Of a copy, whichever way it is made: no more than that.
};

// Those of an op as one rank does it, in the order of its inputs; none: it runs in the compute type. FP8
// units take dimensions that are multiples of 16.
std::vector<Fp8Operand> fp8_operands(const Graph& graph, const Plan& plan, const Sharding& sharding, OpId op);

// How the op's product is worked out.
Fp8Arithmetic fp8_arithmetic(const Plan& plan, OpKind kind);

// A copy with its scales, in memory that begins at a multiple of 256.
std::int64_t fp8_copy_bytes(const Fp8Operand& operand);
// What is kept of an instruction's matrices for later ones begins with their largest elements.
inline constexpr std::int64_t kFp8LargestBytes = 256;

}  // namespace orrery

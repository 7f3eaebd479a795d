#pragma once
// Which products of a plan run in FP8, and what that takes.
//
// All of a layer's products do: their operands are copied to FP8 before the product (activations and weights
// as E4M3, gradients as E5M2: Micikevicius et al. 2022), each with one scale that follows from its own
// largest element. Experts, their routers, and what is outside of the layers stay in the compute type.

#include <cstdint>
#include <vector>

#include "model/graph.hpp"
#include "planner/plan.hpp"
#include "planner/sharding.hpp"

namespace orrery {

// A matrix that is copied for an op's products.
struct Fp8Operand {
  TensorId tensor;
  std::int64_t elements = 0;  // On one rank.
};

// Those of an op as one rank does it, in the order of its inputs; none: it runs in the compute type. FP8
// units take dimensions that are multiples of 16.
std::vector<Fp8Operand> fp8_operands(const Graph& graph, const Plan& plan, const Sharding& sharding, OpId op);

// A copy of so many elements with its scale, in memory that begins at a multiple of 256.
std::int64_t fp8_copy_bytes(std::int64_t elements);
// What is kept of an instruction's matrices for later ones begins with their largest elements.
inline constexpr std::int64_t kFp8LargestBytes = 256;

}  // namespace orrery

#pragma once
// Which products of a plan run in FP8, and what that takes.
//
// Of a layer's products the forward and the input's gradient do: both operands are copied to FP8 before the
// product (activations and weights as E4M3, gradients as E5M2: Micikevicius et al. 2022), each with one scale
// that follows from its own largest element. The weight's gradient stays in the compute type, and so do
// experts, their routers, and what is outside of the layers.

#include <cstdint>
#include <optional>

#include "model/graph.hpp"
#include "planner/plan.hpp"
#include "planner/sharding.hpp"

namespace orrery {

struct Fp8Copies {
  std::int64_t elements = 0;  // Of all copies: one byte each.
  std::int64_t bytes = 0;     // What they take with their scales.
};

// Of an op as one rank does it; none: it runs in the compute type. FP8 units take dimensions that are
// multiples of 16.
std::optional<Fp8Copies> fp8_copies(const Graph& graph, const Plan& plan, const Sharding& sharding, OpId op);

}  // namespace orrery

#pragma once
// A launch: the ops that one kernel does, and what that kernel costs in arithmetic and bytes on one rank.

#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/kernel_set.hpp"
#include "planner/plan.hpp"
#include "planner/sharding.hpp"

namespace orrery {

struct GraphIndex;

struct Launch {
  std::vector<OpId> ops;
  std::int32_t ring_step = -1;  // Of ring attention: the one block of keys and values that it works on.
};

// Cuts a run of ops into launches. Ops of different blocks join only if `across_blocks`; nothing joins a
// launch whose result is still to be summed over ranks.
std::vector<Launch> cut_launches(const Graph& graph, const Sharding& sharding, const std::vector<OpId>& ops,
                                 const KernelSet& kernels, bool across_blocks);

// Shape, flops and memory traffic of a launch; the label is left to the caller. Tensors that only pass
// between the launch's own ops cost no traffic. Parameter gradients are accumulated: read and written.
Kernel launch_kernel(const Graph& graph, const GraphIndex& index, const Plan& plan, const Sharding& sharding,
                     const Launch& launch);

}  // namespace orrery

#pragma once
// Runs one step of a Program on all of its ranks, in double precision and in one thread: every instruction
// does what it says to the rank's buffers, and only that. A plan that is lowered wrongly (a sum that is
// missing, a part in the wrong place, a receive that comes too late) gives other gradients than the whole
// graph, or none.

#include <cstdint>
#include <functional>
#include <vector>

#include "executor/host/reference_op.hpp"
#include "model/program.hpp"

namespace orrery::host {

struct StepInput {
  // By tensor of the graph: parameters and buffers, whole. Others stay empty.
  const std::vector<Values>& parameters;
  // Whole token ids or labels of one micro-batch, by its global index.
  std::function<Values(std::int32_t microbatch, TensorId input)> inputs;
};

struct StepResult {
  std::vector<double> losses;     // By global micro-batch: the mean over its tokens.
  std::vector<Values> gradients;  // By parameter: whole, summed over micro-batches. Others stay empty.
};

// Buffers that the memory plan has placed lie in one arena per rank, where whatever shares an address
// overwrites each other. THROWS Error(kRuntime) naming rank and instruction: ranks that wait for each other
// for ever; an op that sees one dimension divided in two ways; ranks that end with different gradients for
// one element, or none. REQUIRES: verify(program) is empty, and the program was lowered from `graph`.
StepResult run_step(const Graph& graph, const Program& program, const StepInput& input);

}  // namespace orrery::host

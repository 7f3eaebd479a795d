#pragma once
// The two halves of running an instruction that step.cpp leaves to others.

#include <cstdint>
#include <vector>

#include "executor/host/rank_state.hpp"

namespace orrery::host {

// The ops of a compute instruction. THROWS as run_step.
void run_compute(const Graph& graph, const Program& program, RankState& rank, const Instruction& instruction);

// Adds what attention made of one block of keys to what it made of those before, where blocks travel round a
// ring (planner/ring_attention.cpp). Operands: the forward's context and log-sum-exps so far and of the
// block; the backward's gradient of the queries so far and of the block, the gradients of keys and values of
// the block, and those that came in with it, which are written. Then the sum, unless it is written where it
// was.
void add_ring_step(const Op& op, RankState& rank, const std::vector<Operand>& operands);

// A collective, of all members of its group in order of position, each with its own instruction.
struct Member {
  RankState* rank = nullptr;
  const Instruction* instruction = nullptr;
};
void run_collective(const Graph& graph, const Program& program, const std::vector<Member>& group);

}  // namespace orrery::host

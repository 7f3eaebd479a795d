#pragma once
// The two halves of running an instruction that step.cpp leaves to others.

#include <cstdint>
#include <vector>

#include "executor/host/rank_state.hpp"

namespace orrery::host {

// The ops of a compute instruction. THROWS as run_step.
void run_compute(const Graph& graph, const Program& program, RankState& rank, const Instruction& instruction);

// A collective, of all members of its group in order of position, each with its own instruction.
struct Member {
  RankState* rank = nullptr;
  const Instruction* instruction = nullptr;
};
void run_collective(const Graph& graph, const Program& program, const std::vector<Member>& group);

}  // namespace orrery::host

#pragma once
// Rewrites of a stage's lists, before the schedule repeats them for every micro-batch (lowering_pass.hpp says
// which there are). Each leaves lists that compute the same tensors.

#include <cstdint>
#include <vector>

#include "planner/lowering_pass.hpp"
#include "planner/stage_template.hpp"

namespace orrery {

// Drops collectives that bring a tensor to a placement to which another one of the same block and phase has
// brought it: their readers read the first one's result. Returns how many.
std::int64_t merge_collectives(StageTemplate& stage);

// Cuts a product and the gather of its input before it, or the scatter of its result behind it, into pieces
// of the sequence, so that one piece is computed while the next one's data moves (Megatron-LM's
// tensor-parallel overlap, PyTorch's asynchronous tensor parallelism). Returns how many instructions were
// added.
std::int64_t split_collectives(StageTemplate& stage, const StageInput& input, SymbolTable& symbols);

// Moves gathers and exchanges up, before up to four launches that don't make what they move: they run beside
// these. No further, because what they bring has to be held from then on. Returns how many.
std::int64_t start_collectives_early(StageTemplate& stage);

// Runs those that are switched on, adds to their reports, and sets what the lists' buffers are in place of
// and their dependencies. THROWS Error(kRuntime) naming the pass after which a launch reads something else
// than before, or before it is there.
void run_stage_passes(StageTemplate& stage, const StageInput& input, SymbolTable& symbols,
                      std::vector<PassReport>& reports);

}  // namespace orrery

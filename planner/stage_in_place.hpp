#pragma once
// Buffers of a stage that take over another's memory (Buffer::in_place_of).

#include "model/graph.hpp"
#include "planner/stage_template.hpp"

namespace orrery {

// The logits' gradient takes the logits' place where the op that makes it is the last to touch them, where
// all that touch them run on the compute stream, which is in order, and where both are laid out alike: logits
// that a loss widens to fp32 keep theirs. The buffer is then of the logits' category. REQUIRES: the lists are
// final.
void put_gradients_in_place(StageTemplate& stage, const Graph& graph);

}  // namespace orrery

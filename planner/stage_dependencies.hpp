#pragma once
// What each instruction of a stage's lists waits for follows from what it touches.

#include "planner/stage_template.hpp"

namespace orrery {

// Sets TemplateInstruction::after and reads_input, StageTemplate::sent_ready and TemplateParameter::ready.
// An instruction waits for the last one to write what it touches and, where it writes, for those that have
// read it since. `blocking`: for the one before it as well, whatever its stream, as a collective does that a
// host program calls without asking for its handle.
void set_dependencies(StageTemplate& stage, bool blocking);

}  // namespace orrery

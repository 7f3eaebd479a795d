#pragma once
// Traces that ui.perfetto.dev and chrome://tracing open: a process per rank class (its name says which ranks
// it stands for), a thread per stream.

#include <ostream>

#include "model/program.hpp"
#include "model/timeline.hpp"

namespace orrery {

void write_trace(std::ostream& out, const Program& program, const Timeline& timeline);

}  // namespace orrery

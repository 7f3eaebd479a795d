#pragma once
// Whether a schedule can run, built here or written by hand: every pass once, in an order that finishes, with
// messages that meet.

#include <string>
#include <vector>

#include "planner/pipeline_schedule.hpp"
#include "planner/schedule_messages.hpp"

namespace orrery {

// Everything that is wrong with it, at once; nothing: it runs. The checks, each only if those before found
// nothing: (1) chunks and micro-batches in range, each forward once, each backward once, whole or in two
// parts, and a pass that overlaps is a forward followed by another chunk's backward or a micro-batch's that
// is not its own; (2) what passes wait for lets all of them run; (3) so do the messages: queues that block
// each other are told with the pass at which each rank stops.
std::vector<std::string> verify(const Schedule& schedule, const MessageQueues& queues = {});

}  // namespace orrery

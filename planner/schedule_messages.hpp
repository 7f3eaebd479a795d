#pragma once
// The messages of a schedule: in which order to post receives, and a dry run that finds queues which block
// each other. Messages from one rank to another carry activations (of forwards) or gradients, each kind with
// a queue of its own; the k-th send meets the k-th receive, so both ends must queue them in one order. That
// is the sender's: where a rank reads later what was sent earlier (list and wave with several chunks), it
// takes the earlier one in first and keeps it.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/pipeline_schedule.hpp"

namespace orrery {

struct MessageQueues {
  // One queue for each peer, kind of data (activations, gradients) and direction. False: a rank's sends of
  // one kind of data share a queue whoever reads them, and so do its receives; schedules that send both ways
  // then deadlock.
  bool per_peer = true;
  // A receive is posted when this many passes are still to come before the one that reads it begins.
  std::int32_t receives_ahead = 1;
};

// [rank][pass] → the passes (indices on the same rank) whose messages to post receives for when this pass
// begins, in order: for each peer and kind of data the order of sending. Each message once.
std::vector<std::vector<std::vector<std::int32_t>>> receive_plan(const Schedule& schedule,
                                                                 std::int32_t receives_ahead = 1);

// Plays the schedule with rendezvous: a send and a receive hold their queues until both are at the head. A
// pass waits for its messages only, a send for its pass. Returns nothing when all ran, else the index of the
// pass that each rank stopped at. REQUIRES: passes in range; run_passes finishes.
std::vector<std::size_t> dry_run(const Schedule& schedule, const MessageQueues& queues = {});

}  // namespace orrery

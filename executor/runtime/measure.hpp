#pragma once
// How long the compute instructions of a Program take here, without running it: one rank's, in their order,
// while everything that would come from others stays as it is. For calibration.

#include <cstdint>
#include <vector>

#include "executor/runtime/rank_loop.hpp"

namespace orrery::host {

struct MeasureOptions {
  std::int32_t rounds = 10;  // Of all instructions, after one that doesn't count.
  std::int32_t copies = 1;   // The same on so many threads at once, each with memory of its own.
};

// By instruction of the rank's role: seconds of each round (of all copies); nothing for communication.
// REQUIRES: as run_threads (run.hpp).
std::vector<std::vector<double>> measure_computes(const Graph& graph, const Program& program, RankId rank,
                                                  const RunCallbacks& callbacks,
                                                  const MeasureOptions& options = {});

}  // namespace orrery::host

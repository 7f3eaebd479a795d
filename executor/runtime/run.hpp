#pragma once
// Runs a Program for real: every rank a thread of this process, training on what the callbacks bring, and
// back come losses, norms, a hash of the parameters and the Timeline of what happened.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/runtime/rank_loop.hpp"
#include "executor/runtime/state.hpp"
#include "model/timeline.hpp"

namespace orrery::host {

struct RunOptions {
  RunCallbacks callbacks;
  InitialState initial;
  std::int64_t steps = 1;
  std::int64_t warmup = 0;     // The first so many steps count for losses, not for times.
  std::int64_t recorded = 20;  // Stamps of every instruction are kept for the last so many steps.
  bool pin = false;            // Each rank to a core of its own, while there are some.
};

struct RunResult {
  std::vector<double> losses;          // By step: the mean over its micro-batches.
  std::vector<double> gradient_norms;  // By step, before clipping; empty: nobody asked for it.
  std::vector<double> step_s;          // By step after the warm-up: from the slowest rank's end to its next.
  std::array<std::uint64_t, 2> parameter_hash = {};
  std::int64_t peak_memory_bytes = 0;  // Of the largest arena: all that the memory plan knows of.
  std::int64_t workspace_bytes = 0;  // Beside it, of the rank that has most: what ops of one launch pass on.
  Timeline timeline;                 // Of the recorded step of median length.
};

// THROWS Error of the first rank that fails. REQUIRES: verify(program) is empty, memory plans have placed
// every buffer, and the program was lowered from `graph`.
RunResult run_threads(const Graph& graph, const Program& program, const RunOptions& options);

// What stands in the World after a run, however its ranks were run.
RunResult collect(const Graph& graph, const World& world, const RunOptions& options);

// The digits of a hash.
std::string to_text(const std::array<std::uint64_t, 2>& hash);

}  // namespace orrery::host

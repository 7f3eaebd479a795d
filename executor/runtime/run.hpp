#pragma once
// Runs a Program for real, training on what the callbacks bring, and back come losses, norms, a hash of the
// parameters and the Timeline of what happened. Ranks are threads of this process, processes that it forks,
// or processes that somebody else has launched, on one host or several: the results are the same bits.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "executor/launch/rendezvous.hpp"
#include "executor/runtime/rank_loop.hpp"
#include "executor/runtime/state.hpp"
#include "model/timeline.hpp"

namespace orrery::host {

struct RunOptions {
  std::function<RunCallbacks()> callbacks;  // Called once in every process that has ranks.
  InitialState initial;
  std::int64_t steps = 1;
  std::int64_t warmup = 0;     // The first so many steps count for losses, not for times.
  std::int64_t recorded = 20;  // Stamps of every instruction are kept for the last so many steps.
  bool pin = false;            // Each rank to a core of its own, while there are some.
  std::chrono::milliseconds watchdog{60'000};  // A rank that hasn't moved for so long ends the run.
};

// Instructions of one label in the last step of a run on devices, and what their kernels take by themselves.
struct KernelUse {
  std::string label;
  std::int64_t instructions = 0;
  double step_us = 0, alone_us = 0;
  double floor_us = 0;  // See executor/device/floor.hpp.
};

// A kernel, copy or fill of the last step, as the device's tracer saw it; in ns since the run's first step.
struct TracedKernel {
  std::string kernel;
  std::int32_t instruction = -1;  // Of the rank's role; −1: of none that is known.
  std::uint32_t stream = 0;       // The device's number.
  std::int64_t start_ns = 0, end_ns = 0;
};

// What a run on devices has found and used, of rank 0.
struct DeviceUse {
  std::string name;                    // "NVIDIA H200"; empty: a processor.
  std::vector<std::string> libraries;  // With version and place.
  std::int64_t library_bytes = 0;      // Workspaces of libraries and kernels, beside the memory plan.
  std::int64_t used_bytes = 0;  // All that the device's memory had less after the last step than before.
  std::int64_t graph_steps = 0, plain_steps = 0;  // Steps replayed as graphs, and launched kernel by kernel.
  std::int64_t registered_buffers = 0;            // With the communication library, by group.
  std::string capture_failure;                    // Why not as graphs.
  std::vector<KernelUse> kernels;                 // Where they were timed.
  std::vector<std::string> warnings;              // What worked, but not as well as it could, and why.
  std::vector<TracedKernel> traced;               // By start; where somebody asked for it.
};

struct RunResult {
  std::vector<double> losses;          // By step: the mean over its micro-batches.
  std::vector<double> gradient_norms;  // By step, before clipping; empty: nobody asked for it.
  std::vector<double> step_s;          // By step after the warm-up: from the slowest rank's end to its next.
  std::array<std::uint64_t, 2> parameter_hash = {};
  std::int64_t peak_memory_bytes = 0;  // Of the largest arena: all that the memory plan knows of.
  std::int64_t workspace_bytes = 0;  // Beside it, of the rank that has most: what ops of one launch pass on.
  Timeline timeline;                 // Of the recorded step of median length.
  DeviceUse device;                  // Of runs on devices.
};

// Ranks that have work. The others idle, and need neither threads nor processes.
std::vector<RankId> active_ranks(const Program& program);

// All THROW Error(kRuntime) naming the rank that failed, died or hung, with the step and the instruction
// where it was; no thread or process is left then. REQUIRES: verify(program) is empty, memory plans have
// placed every buffer (planner/place_buffers.hpp), and the program was lowered from `graph`.
RunResult run_threads(const Graph& graph, const Program& program, const RunOptions& options);
// REQUIRES: no other thread runs (it forks).
RunResult run_processes(const Graph& graph, const Program& program, const RunOptions& options);
// As one of several processes that have met; each has the rank of that number. All get the results.
// REQUIRES: as many as the program has active ranks, which are the first ones.
RunResult run_joined(const Graph& graph, const Program& program, const RunOptions& options,
                     launch::Rendezvous& rendezvous);

// What stands in the World after a run, however its ranks were run.
RunResult collect(const World& world, const RunOptions& options);

// The digits of a hash.
std::string to_text(const std::array<std::uint64_t, 2>& hash);

}  // namespace orrery::host

#pragma once
// The fast engine: runs a Job and says what happened when. The semantics (streams in order, one compute
// at a time per device, interference, rendezvous, max-min fair links, launch queue) are those of "What an
// instruction means" in docs/architecture.md.

#include <cstdint>

#include "simulator/job.hpp"

namespace orrery {

struct EngineOptions {
  // Steps are simulated until two successive periods are equal, at most this many.
  std::int32_t max_steps = 16;
  // Run the event-driven engine even where a one-pass longest path would be exact.
  bool force_events = false;
};

// What the engine did, for benchmarks and --verbose.
struct EngineCounters {
  std::int64_t instructions = 0;  // Executed, over all steps and classes.
  std::int64_t flow_events = 0;   // Starts and ends of transfers over links, when run by events.
  std::int64_t rate_changes = 0;  // How often a flow got another rate from its links.
  bool one_pass = false;          // Nothing contended: a longest path was the exact answer.
};

// With nobody else there: latency, then bytes at the rate cap. Every mode and engine takes it from here.
SimTime uncontended_time(const Transfer& transfer);

// THROWS Error(kInfeasible) naming each blocked rank and instruction when the program deadlocks.
Timeline run_fast(const Job& job, const EngineOptions& options = {}, EngineCounters* counters = nullptr);

// make_job and run_fast.
Timeline simulate(const Program& program, const Cluster& cluster, const Profile& profile,
                  const JobOptions& job_options = {}, const EngineOptions& options = {});

}  // namespace orrery

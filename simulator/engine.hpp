#pragma once
// The engines: each runs a Job and says what happened when. The semantics (streams in order, one compute
// at a time per device, interference, rendezvous, max-min fair links, launch queue) are those of "What an
// instruction means" in docs/architecture.md.

#include <cstdint>
#include <vector>

#include "simulator/job.hpp"

namespace orrery {

struct EngineOptions {
  // Steps are simulated until two successive periods are equal, at most this many. Where Job::changes are,
  // only steps after the last of them count.
  std::int32_t max_steps = 16;
  // Run the event-driven engine even where a one-pass longest path would be exact.
  bool force_events = false;
};

// What the engine did, for benchmarks and --verbose.
struct EngineCounters {
  std::int64_t instructions = 0;         // Executed, over all steps and classes.
  std::int64_t flow_events = 0;          // Starts and ends of transfers over links, when run by events.
  std::int64_t rate_changes = 0;         // How often a flow got another rate from its links.
  bool one_pass = false;                 // Nothing contended: a longest path was the exact answer.
  std::int32_t live_activities_max = 0;  // SimGrid's own Comms at one time.
  std::vector<SimTime> step_ends;        // What each step took shows the cost of changes.
};

// With nobody else there: latency, then bytes at the rate cap. Every mode and engine takes it from here.
SimTime uncontended_time(const Transfer& transfer);

// THROWS Error(kInfeasible) naming each blocked rank and instruction when the program deadlocks; HangError
// (simulator/hang.hpp) when a fault holds a collective up for longer than Job::watchdog.
Timeline run_fast(const Job& job, const EngineOptions& options = {}, EngineCounters* counters = nullptr);

// The same by SimGrid's clock and its max-min solver, in a process of its own. Slower, and written apart, so
// that a fault in one engine shows as a difference. Ends of transfers that share links are rounded up to the
// picosecond, all other times are whole; after some two hours of simulated time SimGrid's clock, a double, is
// coarser than that.
// THROWS like run_fast, and Error(kRuntime) when the process dies. REQUIRES: no other thread is in the middle
// of anything, as fork() copies this one only.
Timeline run_simgrid(const Job& job, const EngineOptions& options = {}, EngineCounters* counters = nullptr);

// make_job and run_fast.
Timeline simulate(const Program& program, const Cluster& cluster, const Profile& profile,
                  const JobOptions& job_options = {}, const EngineOptions& options = {});

}  // namespace orrery

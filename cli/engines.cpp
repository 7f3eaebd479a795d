#include "cli/engines.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "simulator/hang.hpp"

namespace orrery {
namespace {

void compare(EngineRun& run, const Job& job, double tolerance) {
  const Timeline simgrid = run_simgrid(job);
  const EngineDifference difference = compare_engines(run.timeline, simgrid);
  run.agree = difference.within(tolerance);
  run.remarks += fmt::format("engines: fast {:.12f} s per step, simgrid {:.12f} s; {}\n",
                             run.timeline.step_time.seconds(), simgrid.step_time.seconds(),
                             to_text(difference, *job.program, run.timeline));
}

// The other engine has to hang as well.
void compare_hangs(const Job& job, const Hang& fast, double tolerance) {
  try {
    run_simgrid(job);
  } catch (const HangError& error) {
    const Hang& simgrid = error.hang();
    const double apart_s = std::abs((fast.since - simgrid.since).seconds());
    if (simgrid.step == fast.step && apart_s <= tolerance * fast.since.seconds() + 1e-9) return;
    fail(ErrorKind::kDisagreement, "the engines differ, which is a fault of orrery: fast {}; simgrid {}",
         to_text(fast), to_text(simgrid));
  }
  fail(ErrorKind::kDisagreement, "the engines differ, which is a fault of orrery: fast {}; simgrid doesn't",
       to_text(fast));
}

}  // namespace

EngineRun run_engine(const Scenario& scenario, const Job& job, double tolerance) {
  EngineRun run;
  try {
    run.timeline = (scenario.engine == "simgrid" ? run_simgrid : run_fast)(job, {}, &run.counters);
  } catch (const HangError& error) {
    if (scenario.engine == "both") compare_hangs(job, error.hang(), tolerance);
    throw;
  }
  if (scenario.engine == "both") compare(run, job, tolerance);
  return run;
}

}  // namespace orrery

#include "cli/engines.hpp"

#include <fmt/format.h>

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

}  // namespace

EngineRun run_engine(const Scenario& scenario, const Job& job, double tolerance) {
  EngineRun run;
  run.timeline = (scenario.engine == "simgrid" ? run_simgrid : run_fast)(job, {}, &run.counters);
  if (scenario.engine == "both") compare(run, job, tolerance);
  return run;
}

}  // namespace orrery

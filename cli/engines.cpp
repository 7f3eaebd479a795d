#include "cli/engines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "simulator/compare_engines.hpp"

namespace orrery {
namespace {

void compare(EngineRun& run, const Job& job) {
  const Timeline simgrid = run_simgrid(job);
  const EngineDifference difference = compare_engines(run.timeline, simgrid);
  run.agree = difference.within(kEngineTolerance);
  run.remarks += fmt::format("engines: fast {:.12f} s per step, simgrid {:.12f} s; {}\n",
                             run.timeline.step_time.seconds(), simgrid.step_time.seconds(),
                             to_text(difference, *job.program, run.timeline));
}

// What each step took: the last ones are the steady state after the last change.
std::string tell_steps(const std::vector<SimTime>& ends) {
  constexpr std::size_t kShown = 16;
  std::vector<SimTime> steps;
  for (std::size_t i = 0; i < ends.size(); ++i) steps.push_back(ends[i] - (i == 0 ? SimTime{} : ends[i - 1]));
  std::string text = "faults: steps took";
  for (std::size_t i = 0; i < std::min(steps.size(), kShown); ++i)
    fmt::format_to(std::back_inserter(text), "{}{:.4g}", i == 0 ? " " : ", ", steps[i].seconds());
  if (steps.size() > kShown) text += fmt::format(", … ({} in all)", steps.size());
  const SimTime pace = static_cast<std::int64_t>(steps.size()) * *std::ranges::min_element(steps);
  return text + fmt::format(" s, together {:.4g} s more than at the pace of the shortest\n",
                            (ends.back() - pace).seconds());
}

}  // namespace

EngineRun run_engine(const Scenario& scenario, const Job& job) {
  EngineRun run;
  run.timeline = (scenario.engine == "simgrid" ? run_simgrid : run_fast)(job, {}, &run.counters);
  if (!job.changes.empty()) run.remarks += tell_steps(run.counters.step_ends);
  if (scenario.engine == "both") compare(run, job);
  return run;
}

}  // namespace orrery

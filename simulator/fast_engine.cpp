#include <cassert>
#include <optional>

#include "simulator/engine.hpp"
#include "simulator/event_engine.hpp"
#include "simulator/one_pass.hpp"

namespace orrery {

SimTime uncontended_time(const Transfer& transfer) {
  if (transfer.bytes == 0) return transfer.latency;
  assert(transfer.rate_cap > 0);
  return transfer.latency +
         from_seconds(static_cast<double>(transfer.bytes) / static_cast<double>(transfer.rate_cap));
}

Timeline run_fast(const Job& job, const EngineOptions& options, EngineCounters* counters) {
  assert(options.max_steps >= 1);
  const fast::Layout layout(job);
  if (!options.force_events && job.changes.empty() && job.core_pools.empty()) {
    EngineCounters of_pass;
    if (std::optional<Timeline> timeline = fast::run_one_pass(layout, options, of_pass)) {
      if (counters != nullptr) *counters = of_pass;
      return *std::move(timeline);
    }
  }
  EngineCounters of_events;
  Timeline timeline = fast::EventEngine(layout, options).run(of_events);
  if (counters != nullptr) *counters = of_events;
  return timeline;
}

Timeline simulate(const Program& program, const Cluster& cluster, const Profile& profile,
                  const JobOptions& job_options, const EngineOptions& options) {
  return run_fast(make_job(program, cluster, profile, job_options), options);
}

}  // namespace orrery

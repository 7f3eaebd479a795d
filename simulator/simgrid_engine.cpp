#include <cassert>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "simulator/engine.hpp"
#include "simulator/simgrid_process.hpp"
#include "simulator/simgrid_replay.hpp"

namespace orrery {
namespace {

using simgrid_engine::Replay;

// What comes back from the child: counters, ends of the steps, times of the last one; where it hangs, all
// streams in their stead.
struct Counts {
  std::int64_t instructions = 0;
  std::int64_t flow_events = 0;
  std::int64_t steps = 0;
  std::int32_t live_activities_max = 0;
  std::int32_t blocked = -1;  // Streams, where it hangs; and where that is.
  std::int32_t rendezvous = -1, stream = -1;
  std::int64_t since = 0;
};

template <class T>
void append(std::string& text, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

template <class T>
void take(std::string_view& text, std::span<T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  assert(text.size() >= values.size_bytes());
  if (values.empty()) return;  // Copying nothing to nowhere isn't defined.
  std::memcpy(values.data(), text.data(), values.size_bytes());
  text.remove_prefix(values.size_bytes());
}

std::string replay(const fast::Layout& layout, const EngineOptions& options) {
  Replay replay(layout, options);
  fast::Stall stall;
  try {
    replay.run();
  } catch (const fast::Stall& found) {
    stall = found;
  }
  const EngineCounters& counted = replay.counters();
  Counts counts{counted.instructions, counted.flow_events, replay.ends().count(),
                counted.live_activities_max};
  if (stall.rendezvous >= 0) {
    counts.blocked = static_cast<std::int32_t>(stall.blocked.size());
    counts.rendezvous = stall.rendezvous;
    counts.stream = stall.stream;
    counts.since = stall.since;
  }
  std::string answer;
  append(answer, std::span<const Counts>(&counts, 1));
  append(answer, std::span<const SimTime>(counted.step_ends));
  if (stall.rendezvous >= 0)
    append(answer, std::span<const fast::BlockedStream>(stall.blocked));
  else
    append(answer, std::span<const fast::Times>(replay.last_step()));
  return answer;
}

}  // namespace

Timeline run_simgrid(const Job& job, const EngineOptions& options, EngineCounters* counters) {
  assert(options.max_steps >= 1);
  const fast::Layout layout(job);
  const std::string answer = simgrid_engine::run_in_child([&] { return replay(layout, options); });
  std::string_view rest = answer;
  Counts counts;
  take(rest, std::span(&counts, 1));
  EngineCounters counted;
  counted.instructions = counts.instructions;
  counted.flow_events = counts.flow_events;
  counted.live_activities_max = counts.live_activities_max;
  counted.step_ends.resize(static_cast<std::size_t>(counts.steps));
  take(rest, std::span(counted.step_ends));
  if (counts.blocked >= 0) {
    fast::Stall stall{counts.rendezvous, counts.stream, counts.since, {}};
    stall.blocked.resize(static_cast<std::size_t>(counts.blocked));
    take(rest, std::span(stall.blocked));
    fast::fail_hung(layout, stall, counted.step_ends);
  }
  fast::StepRecord record(static_cast<std::size_t>(layout.instruction_count()));
  take(rest, std::span(record));
  assert(rest.empty());
  fast::StepEnds ends(job, options, simgrid_engine::kPeriodTolerance);
  for (const SimTime end : counted.step_ends) ends.add(end.picoseconds);
  Timeline timeline = ends.timeline(layout, record);
  if (counters != nullptr) *counters = counted;
  return timeline;
}

}  // namespace orrery

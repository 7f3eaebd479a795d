#include "simulator/fast_engine_steps.hpp"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <string>

#include "base/error.hpp"

namespace orrery::fast {

StepEnds::StepEnds(const Job& job, const EngineOptions& options, std::int64_t tolerance)
    : max_steps_(options.max_steps), tolerance_(tolerance) {
  if (!job.changes.empty()) last_change_ = job.changes.back().at.picoseconds;
}

void StepEnds::add(std::int64_t end) {
  constexpr std::int32_t kMaxSteps = 10'000;  // So that a typing error of a date ends some day.
  ends_.push_back(end);
  if (end < last_change_) ++before_changes_;
  if (end < last_change_ && before_changes_ == kMaxSteps)
    fail(ErrorKind::kInput,
         "the last change comes {} s after the start, but {} steps take only {} s; let it come sooner",
         SimTime{last_change_}.seconds(), kMaxSteps, SimTime{end}.seconds());
}

bool StepEnds::settled() const {
  const std::size_t n = ends_.size();
  if (n < 3 || ends_[n - 3] < last_change_) return false;
  const std::int64_t period = ends_[n - 1] - ends_[n - 2], before = ends_[n - 2] - ends_[n - 3];
  if (tolerance_ == 0) return period == before;
  return std::abs(period - before) <= tolerance_ + period / 1'000'000'000;
}

std::vector<SimTime> StepEnds::times() const {
  std::vector<SimTime> times;
  for (const std::int64_t end : ends_) times.push_back({end});
  return times;
}

Timeline StepEnds::timeline(const Layout& layout, const StepRecord& record) const {
  assert(finished());
  const Job& job = layout.job;
  Timeline timeline;
  timeline.spans.reserve(static_cast<std::size_t>(layout.instruction_count()));
  for (std::size_t c = 0; c < job.classes.size(); ++c) {
    const JobClass& rank_class = job.classes[c];
    const Role& role = job.program->roles[rank_class.ranks.role.index()];
    for (std::size_t i = 0; i < role.instructions.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(layout.first_instruction[c]) + i;
      Span span;
      span.rank_class = static_cast<std::int32_t>(c);
      span.stream = role.instructions[i].stream;
      span.first = span.last = static_cast<std::int32_t>(i);
      span.start = {record[at].start};
      span.ready = rank_class.rendezvous[i] < 0 ? span.start : SimTime{record[at].ready};
      span.end = {record[at].end};
      timeline.spans.push_back(span);
    }
    timeline.classes.push_back(rank_class.ranks);
  }
  const std::size_t n = ends_.size();
  timeline.step_start = {n >= 2 ? ends_[n - 2] : 0};
  timeline.makespan = {ends_.front()};
  timeline.step_time = SimTime{ends_.back()} - timeline.step_start;
  timeline.steps = count();
  timeline.settled = settled();
  return timeline;
}

std::string instruction_of(const Layout& layout, std::int32_t stream, std::int32_t instruction) {
  const auto c = static_cast<std::size_t>(layout.streams[static_cast<std::size_t>(stream)].rank_class);
  const Program& program = *layout.job.program;
  const Role& role = program.roles[layout.job.classes[c].ranks.role.index()];
  return instruction_name(program, role.instructions[static_cast<std::size_t>(instruction)]);
}

namespace {

std::string rank_of(const Layout& layout, std::int32_t stream) {
  const auto c = static_cast<std::size_t>(layout.streams[static_cast<std::size_t>(stream)].rank_class);
  const std::vector<RankId>& ranks = layout.job.classes[c].ranks.ranks;
  return ranks.empty() ? fmt::format("class {}", c) : fmt::format("rank {}", ranks.front().value);
}

std::string reason(const Layout& layout, const std::vector<BlockedStream>& blocked,
                   const BlockedStream& one) {
  if (one.waits_for >= 0) return fmt::format("'{}'", instruction_of(layout, one.stream, one.waits_for));
  const StreamLayout& stream = layout.streams[static_cast<std::size_t>(one.stream)];
  const auto met = static_cast<std::size_t>(stream.rendezvous[one.instruction]);
  std::string missing;
  for (const Seat& seat : layout.seats_of(layout.job.rendezvous[met])) {
    const auto at = std::lower_bound(
        blocked.begin(), blocked.end(), seat.stream,
        [](const BlockedStream& candidate, std::int32_t number) { return candidate.stream < number; });
    const std::int32_t instruction =
        seat.instruction - layout.streams[static_cast<std::size_t>(seat.stream)].base;
    const bool arrived = at != blocked.end() && at->stream == seat.stream && at->waits_for < 0 &&
                         at->instruction == instruction;
    if (arrived) continue;
    if (!missing.empty()) {
      missing += " and others";
      break;
    }
    missing = fmt::format("{} to reach '{}'", rank_of(layout, seat.stream),
                          instruction_of(layout, seat.stream, instruction));
  }
  return missing;
}

}  // namespace

void fail_deadlocked(const Layout& layout, const std::vector<BlockedStream>& blocked) {
  constexpr std::size_t kShown = 8;
  std::string message =
      fmt::format("the program deadlocks: {} stream(s) wait for each other", blocked.size());
  for (std::size_t i = 0; i < std::min(blocked.size(), kShown); ++i) {
    const BlockedStream& one = blocked[i];
    message += fmt::format("\n  {}: '{}' waits for {}", rank_of(layout, one.stream),
                           instruction_of(layout, one.stream, one.instruction), reason(layout, blocked, one));
  }
  if (blocked.size() > kShown) message += fmt::format("\n  … and {} more", blocked.size() - kShown);
  message +=
      "\nranks must post the transfers that they share in the same order on each stream, or on separate "
      "streams";
  fail(ErrorKind::kInfeasible, "{}", message);
}

}  // namespace orrery::fast

#include "report/metrics.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace orrery {
namespace {

struct Collected {
  std::vector<Interval> compute;
  ByPurpose<std::vector<Interval>> moving;
  ByPurpose<std::vector<Interval>> waiting;
};

ByPurpose<IntervalSet> to_sets(ByPurpose<std::vector<Interval>>& lists) {
  ByPurpose<IntervalSet> sets;
  for (std::size_t i = 0; i < sets.size(); ++i) sets[i] = IntervalSet(std::move(lists[i]));
  return sets;
}

// By axis, then by role: some group of the axis holds ranks of this role and of another one.
std::vector<std::vector<bool>> mixed_roles(const Program& program) {
  std::vector<std::vector<bool>> mixed;
  for (const Axis& axis : program.axes) {
    std::vector<bool>& of_axis = mixed.emplace_back(program.roles.size());
    for (const std::vector<RankId>& group : axis.groups) {
      const auto role_of = [&](RankId rank) { return program.role_of[rank.index()]; };
      const bool mixes =
          std::ranges::adjacent_find(group, std::ranges::not_equal_to{}, role_of) != group.end();
      if (!mixes) continue;
      for (const RankId rank : group) {
        if (role_of(rank).valid()) of_axis[role_of(rank).index()] = true;
      }
    }
  }
  return mixed;
}

void collect(const Program& program, const Timeline& timeline, const Span& span,
             const std::vector<std::vector<bool>>& mixed, Collected& into) {
  const RankClass& of = timeline.classes[static_cast<std::size_t>(span.rank_class)];
  const Role& role = program.roles[of.role.index()];
  const Instruction& instruction = role.instructions[static_cast<std::size_t>(span.first)];
  const SimTime window = timeline.step_start;
  const SimTime period = timeline.step_time;
  if (std::holds_alternative<Compute>(instruction.work)) {
    add_folded(into.compute, span.start, span.end, window, period);
    return;
  }
  const auto purpose = static_cast<std::size_t>(instruction.purpose);
  add_folded(into.moving[purpose], span.ready, span.end, window, period);
  const auto* const collective = std::get_if<Collective>(&instruction.work);
  if (collective != nullptr && !mixed[collective->axis.index()][of.role.index()]) {
    add_folded(into.waiting[purpose], span.start, span.ready, window, period);
  }
}

// Adds what one rank of the class spends.
void add_shares(const Activity& activity, SimTime step, double weight, StepShares& shares) {
  const SimTime compute = activity.compute.length();
  SimTime idle = step - compute;
  IntervalSet taken = activity.compute;
  for (std::size_t purpose = 0; purpose < kPurposeCount; ++purpose) {
    const IntervalSet moving = activity.moving[purpose].without(taken);
    taken = taken.united(moving);
    const IntervalSet waiting = activity.waiting[purpose].without(taken);
    taken = taken.united(waiting);
    shares.moving_s[purpose] += weight * moving.length().seconds();
    shares.waiting_s[purpose] += weight * waiting.length().seconds();
    idle -= moving.length() + waiting.length();
  }
  IntervalSet communication;
  for (const IntervalSet& moving : activity.moving) communication = communication.united(moving);
  shares.communication_s += weight * communication.length().seconds();
  shares.compute_s += weight * compute.seconds();
  shares.bubble_s += weight * idle.seconds();
}

}  // namespace

void add_folded(std::vector<Interval>& intervals, SimTime start, SimTime end, SimTime window,
                SimTime period) {
  if (end <= start || period <= SimTime{}) return;
  const SimTime window_end = window + period;
  if (end - start >= period) {
    intervals.push_back({window, window_end});
    return;
  }
  // The copy of the span that starts inside the window, and the one a period earlier.
  std::int64_t offset = (start - window).picoseconds % period.picoseconds;
  if (offset < 0) offset += period.picoseconds;
  const SimTime first = window + SimTime{offset};
  const SimTime last = first + (end - start);
  intervals.push_back({first, std::min(last, window_end)});
  if (last > window_end) intervals.push_back({window, last - period});
}

std::vector<Activity> activities(const Program& program, const Timeline& timeline) {
  std::vector<Collected> collected(timeline.classes.size());
  const std::vector<std::vector<bool>> mixed = mixed_roles(program);
  for (const Span& span : timeline.spans) {
    collect(program, timeline, span, mixed, collected[static_cast<std::size_t>(span.rank_class)]);
  }
  std::vector<Activity> result;
  result.reserve(collected.size());
  for (Collected& one : collected) {
    result.push_back({IntervalSet(std::move(one.compute)), to_sets(one.moving), to_sets(one.waiting)});
  }
  return result;
}

double StepShares::exposed_s() const {
  double total = 0;
  for (std::size_t purpose = 0; purpose < kPurposeCount; ++purpose) {
    total += moving_s[purpose] + waiting_s[purpose];
  }
  return total;
}

double StepShares::overlap() const {
  double exposed = 0;
  for (const double moving : moving_s) exposed += moving;
  return communication_s > 0 ? std::max(0.0, 1 - exposed / communication_s) : 0;
}

StepShares step_shares(const Program& program, const Timeline& timeline) {
  std::size_t ranks = 0;
  for (const RankClass& one : timeline.classes) ranks += one.ranks.size();
  StepShares shares;
  if (ranks == 0) return shares;
  shares.step_s = timeline.step_time.seconds();
  const std::vector<Activity> by_class = activities(program, timeline);
  for (std::size_t i = 0; i < by_class.size(); ++i) {
    const double weight = static_cast<double>(timeline.classes[i].ranks.size()) / static_cast<double>(ranks);
    add_shares(by_class[i], timeline.step_time, weight, shares);
  }
  return shares;
}

}  // namespace orrery

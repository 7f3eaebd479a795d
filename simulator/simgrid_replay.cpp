#include "simulator/simgrid_replay.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "simulator/event_engine_units.hpp"

namespace orrery::simgrid_engine {
namespace {

struct Finished {};  // Thrown to leave SimGrid's main loop.

// Demands are counted once for a transfer and link; the rest is the solver's.
void mark_links_listed_twice(const Job& job, std::vector<char>& fillable) {
  std::vector<std::int32_t> last_transfer(fillable.size(), -1);
  for (std::size_t t = 0; t < job.transfers.size(); ++t)
    for (std::int32_t u = job.transfers[t].links.begin; u < job.transfers[t].links.end; ++u) {
      const auto link = static_cast<std::size_t>(job.link_uses[static_cast<std::size_t>(u)].link);
      if (std::exchange(last_transfer[link], static_cast<std::int32_t>(t)) == static_cast<std::int32_t>(t))
        fillable[link] = 1;
    }
}

}  // namespace

std::vector<char> fillable_links(const fast::Layout& layout) {
  const Job& job = layout.job;
  std::vector<std::int32_t> last_held(job.transfers.size(), -1);
  std::map<std::pair<std::int32_t, std::int32_t>, double> largest;  // By link and stream held.
  for (const Rendezvous& meeting : job.rendezvous) {
    const auto& transfer = job.transfers[static_cast<std::size_t>(meeting.transfer)];
    const std::int32_t held = layout.seats_of(meeting).front().stream;
    // Pipelines and rings repeat a transfer many times.
    if (std::exchange(last_held[static_cast<std::size_t>(meeting.transfer)], held) == held) continue;
    for (std::int32_t u = transfer.links.begin; u < transfer.links.end; ++u) {
      const LinkUse& use = job.link_uses[static_cast<std::size_t>(u)];
      double& demand = largest[{use.link, held}];
      demand = std::max(demand, static_cast<double>(use.count) * static_cast<double>(transfer.rate_cap));
    }
  }
  std::vector<double> room(job.link_capacity.begin(), job.link_capacity.end());
  for (const Change& change : job.changes)
    if (change.what == Change::What::kLink) {
      const auto link = static_cast<std::size_t>(change.index);
      room[link] = std::min(room[link], change.factor * static_cast<double>(job.link_capacity[link]));
    }
  for (const auto& [key, demand] : largest) room[static_cast<std::size_t>(key.first)] -= demand;
  std::vector<char> fillable;
  for (const double left : room) fillable.push_back(left < 0);
  mark_links_listed_twice(job, fillable);
  return fillable;
}

Replay::Replay(const fast::Layout& layout, const EngineOptions& options)
    : layout_(layout),
      job_(layout.job),
      class_count_(static_cast<std::int32_t>(layout.job.classes.size())),
      stream_count_(static_cast<std::int32_t>(layout.streams.size())),
      ends_(layout.job, options, kPeriodTolerance),
      step_limit_(ends_.limit()),
      watchdog_(layout.job),
      streams_(layout.streams.size()),
      devices_(layout.job.classes.size()),
      core_users_(layout.job.core_pools.size(), 0),
      transfers_(layout.streams.size()),
      passed_(static_cast<std::size_t>(layout.instruction_count()), 0),
      first_waiter_(static_cast<std::size_t>(layout.instruction_count()), -1),
      fillable_(fillable_links(layout)) {
  for (const Rendezvous& one : job_.rendezvous) missing_.push_back(one.participants.size());
  find_uses();
  world_ = std::make_unique<World>(world_shape());
  for (std::int32_t s = 0; s < stream_count_; ++s) {
    at(streams_, s).next = at(layout.streams, s).begin;
    if (at(layout.streams, s).begin != at(layout.streams, s).end) going_.push_back(s);
  }
}

void Replay::find_uses() {
  for (const orrery::Transfer& transfer : job_.transfers) {
    const auto begin = static_cast<std::int32_t>(uses_.size());
    for (std::int32_t u = transfer.links.begin; u < transfer.links.end; ++u)
      if (const LinkUse& use = at(job_.link_uses, u); at(fillable_, use.link)) uses_.push_back(use);
    fillable_uses_.push_back({begin, static_cast<std::int32_t>(uses_.size())});
  }
  flow_of_.assign(layout_.streams.size(), -1);
  for (const Rendezvous& one : job_.rendezvous) {
    if (at(fillable_uses_, one.transfer).empty()) continue;
    const std::int32_t held = layout_.seats_of(one).front().stream;
    if (at(flow_of_, held) >= 0) continue;
    at(flow_of_, held) = static_cast<std::int32_t>(stream_of_flow_.size());
    stream_of_flow_.push_back(held);
  }
}

WorldShape Replay::world_shape() const {
  WorldShape shape;
  shape.link_capacity = job_.link_capacity;
  shape.link_used = fillable_;
  shape.link_varies.assign(fillable_.size(), 0);
  for (const Change& change : job_.changes)
    if (change.what == Change::What::kLink) at(shape.link_varies, change.index) = 1;
  shape.alarms = change_alarm() + 1;
  shape.flows = static_cast<std::int32_t>(stream_of_flow_.size());
  shape.caps_vary = job_.transfer_interference != 1;
  return shape;
}

void Replay::run() {
  try {
    apply_changes();
    handle(0, {});
    world_->run([this](std::int64_t now, std::span<const Due> due) { handle(now, due); });
  } catch (const Finished&) {
    counters_.live_activities_max = world_->max_live_flows();
    counters_.step_ends = ends_.times();
    return;
  }
  check_watchdog(fast::kForever);
  const auto still = [](const Device& device) { return device.running >= 0; };
  if (std::ranges::any_of(devices_, still))
    fail(ErrorKind::kInfeasible, "a fault stops a rank for good, so that its compute would never end");
  fast::fail_deadlocked(layout_, blocked());
}

// Devices choose when every stream that gets somewhere at this instant is there, and speeds are settled when
// everything has chosen.
void Replay::handle(std::int64_t now, std::span<const Due> due) {
  check_watchdog(now);
  if (now >= kNever)
    fail(ErrorKind::kInfeasible,
         "a transfer gets so little bandwidth that it would not end within 100 days; check the link rates");
  now_ = now;
  due_.assign(due.begin(), due.end());
  for (;;) {
    if (!due_.empty()) {
      happen(due_.back());
    } else if (!going_.empty()) {
      const std::int32_t stream = going_.back();
      going_.pop_back();
      go_on(stream);
    } else if (!looking_.empty()) {
      choose_computes();
    } else {
      settle();
      close_steps();
      if (going_.empty()) return;
    }
  }
}

// REQUIRES: nothing happens before `next`.
void Replay::check_watchdog(std::int64_t next) {
  if (watchdog_.deadline() >= next) return;
  fast::Stall stall = watchdog_.oldest();
  stall.blocked = blocked();
  counters_.step_ends = ends_.times();
  throw stall;
}

void Replay::happen(Due due) {
  due_.pop_back();
  if (due.flow) {
    ++counters_.flow_events;
    return end_transfer(at(stream_of_flow_, due.id));
  }
  ring(due.id);
}

void Replay::ring(std::int32_t alarm) {
  if (alarm < class_count_) return end_compute(alarm);
  if (alarm < transfer_alarm(0)) return going_.push_back(alarm - launch_alarm(0));
  if (alarm == change_alarm()) return apply_changes();
  const std::int32_t transfer = alarm - transfer_alarm(0);
  if (at(transfers_, transfer).phase == Phase::kLatency) return begin_moving(transfer);
  end_transfer(transfer);
}

void Replay::go_on(std::int32_t id) {
  Stream& stream = at(streams_, id);
  if (stream.step == step_limit_ || has_to_wait(id)) return;
  const fast::StreamLayout& plan = at(layout_.streams, id);
  if (plan.rendezvous[stream.next->instruction] >= 0) return reach(id);
  stream.state = State::kQueued;
  look_for_compute(plan.rank_class);
}

// For an instruction that it depends on, or for the host to launch it.
bool Replay::has_to_wait(std::int32_t id) {
  Stream& stream = at(streams_, id);
  const fast::StreamLayout& plan = at(layout_.streams, id);
  const fast::Node& node = *stream.next;
  for (std::int32_t d = node.same_step; d < node.end; ++d) {
    const std::int32_t on = plan.base + plan.dependencies[d];
    const bool same_step = d < node.previous_step;
    if (at(passed_, on) > stream.step - (same_step ? 0 : 1)) continue;
    stream.state = State::kNeedsInstruction;
    stream.waits_for = plan.dependencies[d];
    stream.next_waiter = std::exchange(at(first_waiter_, on), id);
    return true;
  }
  const std::int64_t launched =
      stream.step * plan.step_launch + (node.instruction + 1) * job_.launch.picoseconds;
  if (job_.launch.picoseconds == 0 || launched <= now_) return false;
  stream.state = State::kNeedsHost;
  world_->set_alarm(launch_alarm(id), launched);
  return true;
}

void Replay::reach(std::int32_t id) {
  Stream& stream = at(streams_, id);
  const fast::StreamLayout& plan = at(layout_.streams, id);
  stream.state = State::kMeeting;
  times(stream.step, plan.base + stream.next->instruction).start = now_;
  const std::int32_t rendezvous = plan.rendezvous[stream.next->instruction];
  watchdog_.arrive(rendezvous, id, now_);
  if (--at(missing_, rendezvous) == 0) begin_transfer(rendezvous);
}

// The end of the stream's instruction.
void Replay::pass(std::int32_t id) {
  Stream& stream = at(streams_, id);
  const fast::StreamLayout& plan = at(layout_.streams, id);
  const std::int32_t number = plan.base + stream.next->instruction;
  times(stream.step, number).end = now_;
  --at(steps_, stream.step).missing;
  ++counters_.instructions;
  ++at(passed_, number);
  for (std::int32_t w = std::exchange(at(first_waiter_, number), -1); w >= 0; w = at(streams_, w).next_waiter)
    going_.push_back(w);
  stream.state = State::kGoing;
  if (++stream.next == plan.end) {
    stream.next = plan.begin;
    ++stream.step;
  }
  going_.push_back(id);
}

fast::Times& Replay::times(std::int32_t step, std::int32_t instruction) {
  while (static_cast<std::size_t>(step) >= steps_.size())
    steps_.push_back({std::make_unique<fast::StepRecord>(passed_.size()), layout_.instruction_count()});
  return (*at(steps_, step).record)[static_cast<std::size_t>(instruction)];
}

void Replay::close_steps() {
  while (static_cast<std::size_t>(ends_.count()) < steps_.size() && at(steps_, ends_.count()).missing == 0) {
    ends_.add(now_);
    if (ends_.finished()) throw Finished{};
    at(steps_, ends_.count() - 1).record.reset();
  }
  if (ends_.limit() == step_limit_) return;
  for (std::int32_t s = 0; s < stream_count_; ++s)
    if (at(streams_, s).step == step_limit_) going_.push_back(s);
  step_limit_ = ends_.limit();
}

std::vector<fast::BlockedStream> Replay::blocked() const {
  std::vector<fast::BlockedStream> blocked;
  for (std::int32_t s = 0; s < stream_count_; ++s) {
    const Stream& stream = at(streams_, s);
    if (at(layout_.streams, s).begin == at(layout_.streams, s).end || stream.step == step_limit_) continue;
    blocked.push_back({s, stream.next->instruction,
                       stream.state == State::kNeedsInstruction ? stream.waits_for : -1, stream.step});
  }
  return blocked;
}

}  // namespace orrery::simgrid_engine

#include "simulator/event_engine.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "simulator/event_engine_units.hpp"

namespace orrery::fast {

namespace {

bool devices_change(const Job& job) {
  return std::ranges::any_of(job.changes, [](const Change& c) { return c.what == Change::What::kCompute; });
}

bool speeds_vary(const Job& job) {
  return job.compute_interference != 1.0 || job.transfer_interference != 1.0 || job.communication_on_core ||
         !job.core_pools.empty() || devices_change(job);
}

}  // namespace

EventEngine::EventEngine(const Layout& layout, const EngineOptions& options)
    : layout_(layout),
      class_count_(static_cast<std::int32_t>(layout.job.classes.size())),
      stream_count_(static_cast<std::int32_t>(layout.streams.size())),
      launch_(layout.job.launch.picoseconds),
      speeds_vary_(speeds_vary(layout.job)),
      slows_transfers_(layout.job.transfer_interference != 1.0),
      slow_speed_(devices_change(layout.job) || !layout.job.core_pools.empty() ? kFineSlowSpeed : kSlowSpeed),
      full_speed_(std::llround(layout.job.compute_interference * static_cast<double>(slow_speed_))),
      links_(layout.job.link_capacity),
      stopped_(layout.job.link_capacity.size(), 0),
      watchdog_(layout.job),
      ends_(layout.job, options),
      step_limit_(ends_.limit()),
      streams_(layout.streams.size()),
      devices_(layout.job.classes.size()),
      pools_(layout.job.core_pools.size()),
      progress_(static_cast<std::size_t>(layout.instruction_count())) {
  heap_.reserve_ids(layout.job.classes.size() + layout.streams.size());
  missing_.reserve(layout.job.rendezvous.size());
  for (const Rendezvous& meeting : layout.job.rendezvous) missing_.push_back(meeting.participants.size());
  for (std::int32_t s = 0; s < stream_count_; ++s) {
    stream(s).next = plan(s).begin;
    if (plan(s).begin != plan(s).end) ready_streams_.push_back(s);
  }
  for (std::int32_t c = 0; c < class_count_; ++c)
    if (const std::int32_t pool = layout.job.classes[static_cast<std::size_t>(c)].core_pool; pool >= 0)
      pools_[static_cast<std::size_t>(pool)].classes.push_back(c);
  if (!layout.job.changes.empty()) change_date_ = layout.job.changes.front().at.picoseconds;
}

Timeline EventEngine::run(EngineCounters& counters) {
  for (;;) {
    run_instant();
    if (close_steps()) break;
    if (ready_streams_.empty()) next_instant();
  }
  counters.instructions += counters_.instructions;
  counters.flow_events += counters_.flow_events;
  counters.rate_changes += counters_.rate_changes;
  counters.step_ends = ends_.times();
  return ends_.timeline(layout_, *step(ends_.count() - 1).record);
}

void EventEngine::next_instant() {
  if (heap_.empty()) fail_deadlocked(layout_, blocked());
  const std::int64_t next = std::min(heap_.first_date(), change_date_);
  if (watchdog_.deadline() < next) {
    Stall stall = watchdog_.oldest();
    stall.blocked = blocked();
    fail_hung(layout_, stall, ends_.times());
  }
  now_ = next;
  if (now_ == kForever)
    fail(ErrorKind::kInfeasible,
         "something is so slow that it would not end within 100 days; check the link rates and the faults");
  if (now_ == change_date_) apply_changes();
}

// Devices choose only when every stream that gets somewhere at this instant is there.
void EventEngine::run_instant() {
  for (;;) {
    while (!heap_.empty() && heap_.first_date() == now_) fire(heap_.pop());
    if (!ready_streams_.empty()) {
      drain();
    } else if (!dispatch_due_.empty()) {
      dispatch();
    } else {
      break;
    }
  }
  settle_rates();
  assert(heap_.empty() || heap_.first_date() > now_);
}

void EventEngine::fire(std::int32_t id) {
  if (id < class_count_) return finish_compute(id);
  if (id < class_count_ + stream_count_) return ready_streams_.push_back(id - class_count_);
  const std::int32_t slot = id - class_count_ - stream_count_;
  if (active(slot).phase == Phase::kLatency) return begin_flow(slot);
  finish_transfer(slot);
}

void EventEngine::drain() {
  while (!ready_streams_.empty()) {
    const std::int32_t id = ready_streams_.back();
    ready_streams_.pop_back();
    advance(id);
  }
}

void EventEngine::advance(std::int32_t id) {
  Stream& self = stream(id);
  if (self.step == step_limit_) return;
  const StreamLayout& own = plan(id);
  const Node& node = *self.next;
  if (waits_for_instruction(id, node)) return;
  if (launch_ > 0) {
    const std::int64_t launched = self.step * own.step_launch + (node.instruction + 1) * launch_;
    if (launched > now_) {
      self.wait = Wait::kHost;
      heap_.set(launch_id(id), launched);
      return;
    }
  }
  if (own.rendezvous[node.instruction] >= 0) return arrive(id);
  self.wait = Wait::kDevice;
  Device& own_device = device(own.rank_class);
  ++own_device.queued;
  if (own_device.running >= 0 || own_device.dispatch_due) return;
  own_device.dispatch_due = true;
  dispatch_due_.push_back(own.rank_class);
}

bool EventEngine::waits_for_instruction(std::int32_t id, const Node& node) {
  Stream& self = stream(id);
  const StreamLayout& own = plan(id);
  for (std::int32_t d = node.same_step; d < node.end; ++d) {
    Progress& on = progress_[static_cast<std::size_t>(own.base + own.dependencies[d])];
    const std::int32_t needed = d < node.previous_step ? self.step + 1 : self.step;
    if (on.steps >= needed) continue;
    self.wait = Wait::kInstruction;
    self.waits_for = own.dependencies[d];
    self.next_waiter = on.first_waiter;
    on.first_waiter = id;
    return true;
  }
  return false;
}

void EventEngine::arrive(std::int32_t id) {
  Stream& self = stream(id);
  const StreamLayout& own = plan(id);
  const std::int32_t instruction = self.next->instruction;
  self.wait = Wait::kOthers;
  times(self.step, own.base + instruction).start = now_;
  const std::int32_t rendezvous = own.rendezvous[instruction];
  watchdog_.arrive(rendezvous, id, now_);
  if (--missing_[static_cast<std::size_t>(rendezvous)] == 0) begin_transfer(rendezvous);
}

void EventEngine::finish_instruction(std::int32_t id) {
  Stream& self = stream(id);
  const StreamLayout& own = plan(id);
  const std::int32_t number = own.base + self.next->instruction;
  Step& own_step = step(self.step);
  (*own_step.record)[static_cast<std::size_t>(number)].end = now_;
  --own_step.missing;
  ++counters_.instructions;
  Progress& progress = progress_[static_cast<std::size_t>(number)];
  ++progress.steps;
  for (std::int32_t w = std::exchange(progress.first_waiter, -1); w >= 0; w = stream(w).next_waiter)
    ready_streams_.push_back(w);
  self.wait = Wait::kNothing;
  if (++self.next == own.end) {
    self.next = own.begin;
    ++self.step;
  }
  ready_streams_.push_back(id);
}

void EventEngine::add_steps(std::int32_t last) {
  while (static_cast<std::size_t>(last) >= steps_.size()) {
    Step added;
    added.missing = layout_.instruction_count();
    if (spare_records_.empty()) {
      added.record = std::make_unique<StepRecord>(static_cast<std::size_t>(layout_.instruction_count()));
    } else {
      added.record = std::move(spare_records_.back());
      spare_records_.pop_back();
    }
    steps_.push_back(std::move(added));
  }
}

// Whether the last step that will be looked at has ended.
bool EventEngine::close_steps() {
  while (!ends_.finished()) {
    Step& current = step(ends_.count());
    if (current.missing > 0) return false;
    ends_.add(now_);
    if (!ends_.finished()) spare_records_.push_back(std::move(current.record));
    if (ends_.limit() != step_limit_) let_streams_on();
  }
  return true;
}

void EventEngine::let_streams_on() {
  for (std::int32_t s = 0; s < stream_count_; ++s)
    if (stream(s).step == step_limit_) ready_streams_.push_back(s);
  step_limit_ = ends_.limit();
}

std::vector<BlockedStream> EventEngine::blocked() const {
  std::vector<BlockedStream> blocked;
  for (std::int32_t s = 0; s < stream_count_; ++s) {
    const Stream& one = streams_[static_cast<std::size_t>(s)];
    if (plan(s).begin == plan(s).end || one.step == step_limit_) continue;
    blocked.push_back(
        {s, one.next->instruction, one.wait == Wait::kInstruction ? one.waits_for : -1, one.step});
  }
  return blocked;
}

}  // namespace orrery::fast

#include <algorithm>
#include <cassert>

#include "simulator/event_engine.hpp"
#include "simulator/event_engine_units.hpp"

namespace orrery::fast {
namespace {

bool counts_as_flow(const Job& job, const Rendezvous& meeting) {
  const Transfer& transfer = job.transfers[static_cast<std::size_t>(meeting.transfer)];
  return transfer.bytes > 0 && !transfer.links.empty();
}

}  // namespace

const TransferLayout& EventEngine::transfer_of(const Active& one) const {
  const Rendezvous& meeting = layout_.job.rendezvous[static_cast<std::size_t>(one.rendezvous)];
  return layout_.transfers[static_cast<std::size_t>(meeting.transfer)];
}

Rate EventEngine::cap_of(const Active& one) const {
  return one.busy_devices > 0 ? transfer_of(one).slowed_cap : transfer_of(one).cap;
}

void EventEngine::begin_transfer(std::int32_t rendezvous) {
  std::int32_t slot = static_cast<std::int32_t>(active_.size());
  if (free_slots_.empty()) {
    active_.emplace_back();
    heap_.reserve_ids(static_cast<std::size_t>(transfer_id(slot)) + 1);
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Active& begun = active(slot);
  begun = Active{};
  begun.rendezvous = rendezvous;
  const Rendezvous& meeting = layout_.job.rendezvous[static_cast<std::size_t>(rendezvous)];
  for (const Seat& seat : layout_.seats_of(meeting)) {
    Stream& seated = stream(seat.stream);
    seated.wait = Wait::kEndOfWork;
    seated.transfer = slot;
    times(seated.step, seat.instruction).ready = now_;
    if (!speeds_vary_) continue;
    Device& own = device(plan(seat.stream).rank_class);
    ++own.transfers;
    begun.busy_devices += own.counted_busy ? 1 : 0;
    speed_due(plan(seat.stream).rank_class);
  }
  if (counts_as_flow(layout_.job, meeting)) ++counters_.flow_events;

  const TransferLayout& transfer = transfer_of(begun);
  const bool may_slow = transfer.duration > 0 && (slows_transfers_ || !transfer.uses.empty());
  if (!may_slow) {
    heap_.set(transfer_id(slot), now_ + transfer.latency + transfer.duration);
  } else if (transfer.latency > 0) {
    begun.phase = Phase::kLatency;
    heap_.set(transfer_id(slot), now_ + transfer.latency);
  } else {
    begin_flow(slot);
  }
}

void EventEngine::begin_flow(std::int32_t slot) {
  Active& begun = active(slot);
  const TransferLayout& transfer = transfer_of(begun);
  begun.phase = Phase::kFlow;
  begun.begin = begun.since = now_;
  begun.left = Wide{transfer.bytes} * kRatePerByte * kPicosecondsPerSecond;
  if (transfer.uses.empty()) {
    rate_due(slot);
  } else {
    links_.add(slot, layout_.uses_of(transfer), cap_of(begun));
  }
}

void EventEngine::finish_transfer(std::int32_t slot) {
  const Active& finished = active(slot);
  watchdog_.end(finished.rendezvous);
  const Rendezvous& meeting = layout_.job.rendezvous[static_cast<std::size_t>(finished.rendezvous)];
  if (finished.phase == Phase::kFlow && !transfer_of(finished).uses.empty()) links_.remove(slot);
  if (counts_as_flow(layout_.job, meeting)) ++counters_.flow_events;
  missing_[static_cast<std::size_t>(finished.rendezvous)] = meeting.participants.size();
  for (const Seat& seat : layout_.seats_of(meeting)) {
    stream(seat.stream).transfer = -1;
    if (speeds_vary_) {
      --device(plan(seat.stream).rank_class).transfers;
      speed_due(plan(seat.stream).rank_class);
    }
    finish_instruction(seat.stream);
  }
  free_slots_.push_back(slot);
}

void EventEngine::rate_due(std::int32_t slot) {
  if (active(slot).rate_due) return;
  active(slot).rate_due = true;
  rate_due_.push_back(slot);
}

void EventEngine::settle_rates() {
  if (!pools_.empty()) settle_cores();
  for (const std::int32_t rank_class : speed_due_) settle_device(rank_class);
  speed_due_.clear();
  for (const std::int32_t slot : rate_due_) {
    active(slot).rate_due = false;
    if (transfer_of(active(slot)).uses.empty()) {
      settle_flow(slot, cap_of(active(slot)));
    } else {
      links_.set_cap(slot, cap_of(active(slot)));
    }
  }
  rate_due_.clear();
  for (const std::int32_t slot : links_.solve()) settle_flow(slot, links_.rate(slot));
}

bool EventEngine::is_stopped(const TransferLayout& transfer) const {
  if (layout_.job.changes.empty()) return false;
  return std::ranges::any_of(layout_.uses_of(transfer), [&](const LinkUse& use) {
    return stopped_[static_cast<std::size_t>(use.link)] != 0;
  });
}

void EventEngine::settle_flow(std::int32_t slot, Rate rate) {
  Active& flow = active(slot);
  const TransferLayout& transfer = transfer_of(flow);
  // The solver gives everybody something; over a link of nothing that isn't even a trickle. Who crosses one
  // has the solver's least rate until the last such link on its way is back, so it comes here then.
  if (is_stopped(transfer)) rate = 0;
  if (rate == flow.rate && rate > 0) return;
  // Alone from the start: the very time of the cost formula, not one that was rounded differently.
  const bool undisturbed = flow.rate == 0 && flow.begin == now_ && rate == transfer.cap;
  flow.left -= Wide{flow.rate} * (now_ - flow.since);
  assert(flow.left > 0);
  flow.since = now_;
  flow.rate = rate;
  ++counters_.rate_changes;
  heap_.set(transfer_id(slot), undisturbed ? now_ + transfer.duration : date_of_end(now_, flow.left, rate));
}

}  // namespace orrery::fast

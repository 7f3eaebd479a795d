// Computes and transfers: how much of each is left, and at what speed it goes on.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <tuple>

#include "simulator/simgrid_replay.hpp"

namespace orrery::simgrid_engine {
namespace {

// Up to the next picosecond; a thousandth of one is rounding of the sums before.
std::int64_t whole_picoseconds(double picoseconds) {
  return static_cast<std::int64_t>(std::ceil(picoseconds - 1e-3));
}

}  // namespace

void Replay::look_for_compute(std::int32_t rank_class) {
  Device& device = at(devices_, rank_class);
  if (device.running >= 0 || device.looked_for) return;
  device.looked_for = true;
  looking_.push_back(rank_class);
}

// Highest priority, then earliest step, then program order.
void Replay::choose_computes() {
  for (const std::int32_t rank_class : looking_) {
    at(devices_, rank_class).looked_for = false;
    const auto order = [&](std::int32_t id) {
      const Stream& stream = at(streams_, id);
      return std::tuple(-at(layout_.streams, id).priority, stream.step, stream.next->instruction);
    };
    std::int32_t chosen = -1;
    for (std::int32_t s = at(layout_.first_stream, rank_class); s < at(layout_.first_stream, rank_class + 1);
         ++s)
      if (at(streams_, s).state == State::kQueued && (chosen < 0 || order(s) < order(chosen))) chosen = s;
    if (chosen >= 0) begin_compute(rank_class, chosen);
  }
  looking_.clear();
}

void Replay::begin_compute(std::int32_t rank_class, std::int32_t id) {
  Device& device = at(devices_, rank_class);
  Stream& stream = at(streams_, id);
  const fast::StreamLayout& plan = at(layout_.streams, id);
  const std::int32_t instruction = stream.next->instruction;
  times(stream.step, plan.base + instruction).start = now_;
  stream.state = State::kRunning;
  device.running = id;
  device.effort = {static_cast<double>(plan.work[instruction].picoseconds), 0, now_};
  if (plan.work[instruction].picoseconds == 0) return due_.push_back({false, rank_class});
  settle_device_later(rank_class);
}

void Replay::end_compute(std::int32_t rank_class) {
  Device& device = at(devices_, rank_class);
  pass(device.running);
  device.running = -1;
  settle_device_later(rank_class);
  look_for_compute(rank_class);
}

void Replay::begin_transfer(std::int32_t rendezvous) {
  const auto seats = layout_.seats_of(meeting(rendezvous));
  const std::int32_t id = seats.front().stream;
  Transfer& transfer = at(transfers_, id);
  transfer = {};
  transfer.rendezvous = rendezvous;
  for (const fast::Seat& seat : seats) {
    Stream& stream = at(streams_, seat.stream);
    stream.state = State::kMoving;
    stream.transfer = id;
    times(stream.step, seat.instruction).ready = now_;
    const std::int32_t rank_class = at(layout_.streams, seat.stream).rank_class;
    ++at(devices_, rank_class).transfers;
    transfer.busy_devices += at(devices_, rank_class).counted_busy;
    settle_device_later(rank_class);
  }
  if (const SimTime latency = needs(id).latency; latency.picoseconds > 0)
    world_->set_alarm(transfer_alarm(id), now_ + latency.picoseconds);
  else
    begin_moving(id);
}

void Replay::begin_moving(std::int32_t id) {
  Transfer& transfer = at(transfers_, id);
  const orrery::Transfer& need = needs(id);
  const std::int64_t duration = (uncontended_time(need) - need.latency).picoseconds;
  const bool alone = at(fillable_uses_, meeting(transfer.rendezvous).transfer).empty();
  transfer.phase = alone ? Phase::kAlone : Phase::kOnLinks;
  transfer.effort = {static_cast<double>(duration), 0, now_};
  if (duration == 0) {
    due_.push_back({false, transfer_alarm(id)});
    transfer.phase = Phase::kAlone;
    return;
  }
  settle_transfer_later(id);
}

void Replay::end_transfer(std::int32_t id) {
  watchdog_.end(at(transfers_, id).rendezvous);
  for (const fast::Seat& seat : layout_.seats_of(meeting(at(transfers_, id).rendezvous))) {
    at(streams_, seat.stream).transfer = -1;
    const std::int32_t rank_class = at(layout_.streams, seat.stream).rank_class;
    --at(devices_, rank_class).transfers;
    settle_device_later(rank_class);
    pass(seat.stream);
  }
  const Rendezvous& over = meeting(at(transfers_, id).rendezvous);
  at(missing_, at(transfers_, id).rendezvous) = over.participants.size();
  at(transfers_, id).rendezvous = -1;
}

void Replay::apply_changes() {
  for (; next_change_ < job_.changes.size(); ++next_change_) {
    const Change& change = job_.changes[next_change_];
    if (change.at.picoseconds > now_) return world_->set_alarm(change_alarm(), change.at.picoseconds);
    if (change.what == Change::What::kCompute) {
      at(devices_, change.index).factor = change.factor;
      settle_device_later(change.index);
    } else if (at(fillable_, change.index)) {
      world_->set_capacity(change.index,
                           change.factor * static_cast<double>(at(job_.link_capacity, change.index)));
    }
  }
}

void Replay::settle_device_later(std::int32_t rank_class) {
  Device& device = at(devices_, rank_class);
  if (std::exchange(device.unsettled, true)) return;
  unsettled_devices_.push_back(rank_class);
}

void Replay::settle_transfer_later(std::int32_t id) {
  Transfer& transfer = at(transfers_, id);
  if (std::exchange(transfer.unsettled, true)) return;
  unsettled_transfers_.push_back(id);
}

void Replay::settle() {
  if (!core_users_.empty()) occupy_cores();
  for (const std::int32_t rank_class : unsettled_devices_) settle_device(rank_class);
  unsettled_devices_.clear();
  for (const std::int32_t id : unsettled_transfers_) settle_transfer(id);
  unsettled_transfers_.clear();
}

// Where a device takes a core or leaves it, all that compute on the same cores are looked at again.
void Replay::occupy_cores() {
  std::vector<char> moved(core_users_.size(), 0);
  for (const std::int32_t rank_class : unsettled_devices_) {
    Device& device = at(devices_, rank_class);
    const JobClass& kind = at(job_.classes, rank_class);
    const bool communicates = job_.communication_on_core && device.transfers > 0;
    const bool occupies = kind.core_pool >= 0 && (device.running >= 0 || communicates);
    if (std::exchange(device.occupies_core, occupies) == occupies) continue;
    at(core_users_, kind.core_pool) += occupies ? kind.pool_members : -kind.pool_members;
    at(moved, kind.core_pool) = 1;
  }
  for (std::int32_t c = 0; c < class_count_; ++c) {
    const std::int32_t pool = at(job_.classes, c).core_pool;
    if (pool >= 0 && at(moved, pool)) settle_device_later(c);
  }
}

double Replay::speed_of(std::int32_t rank_class) const {
  const Device& device = at(devices_, rank_class);
  const bool moving = device.transfers > 0;
  if (moving && job_.communication_on_core) return 0;
  const double speed = device.factor / (moving ? job_.compute_interference : 1);
  const std::int32_t pool = at(job_.classes, rank_class).core_pool;
  if (pool < 0) return speed;
  const double share = 1e-3 * static_cast<double>(at(job_.core_pools, pool)) / at(core_users_, pool);
  return speed * std::min(1.0, share);
}

void Replay::settle_device(std::int32_t rank_class) {
  Device& device = at(devices_, rank_class);
  device.unsettled = false;
  const bool busy = device.running >= 0;
  if (busy != device.counted_busy) {
    device.counted_busy = busy;
    for (std::int32_t s = at(layout_.first_stream, rank_class); s < at(layout_.first_stream, rank_class + 1);
         ++s) {
      const std::int32_t id = at(streams_, s).transfer;
      if (id < 0) continue;
      at(transfers_, id).busy_devices += busy ? 1 : -1;
      if (at(transfers_, id).phase != Phase::kLatency) settle_transfer_later(id);
    }
  }
  if (!busy) return;
  set_speed(device.effort, speed_of(rank_class), rank_class);
}

void Replay::settle_transfer(std::int32_t id) {
  Transfer& transfer = at(transfers_, id);
  transfer.unsettled = false;
  const double speed = transfer.busy_devices > 0 ? 1 / job_.transfer_interference : 1;
  if (transfer.phase == Phase::kAlone) return set_speed(transfer.effort, speed, transfer_alarm(id));
  const orrery::Transfer& need = needs(id);
  if (transfer.effort.speed == 0) {
    const Range range = at(fillable_uses_, meeting(transfer.rendezvous).transfer);
    world_->start_flow(at(flow_of_, id), need.bytes, need.rate_cap,
                       std::span(uses_).subspan(static_cast<std::size_t>(range.begin),
                                                static_cast<std::size_t>(range.size())));
    ++counters_.flow_events;
  }
  if (transfer.effort.speed != speed && job_.transfer_interference != 1)
    world_->set_cap(at(flow_of_, id), speed * static_cast<double>(need.rate_cap));
  transfer.effort.speed = speed;
}

void Replay::set_speed(Effort& effort, double speed, std::int32_t alarm) {
  if (speed == effort.speed && speed > 0) return;
  effort.left -= effort.speed * static_cast<double>(now_ - effort.since);
  effort.since = now_;
  effort.speed = speed;
  if (speed > 0)
    world_->set_alarm(alarm, now_ + std::max(whole_picoseconds(effort.left / speed), std::int64_t{1}));
  else
    world_->clear_alarm(alarm);
}

}  // namespace orrery::simgrid_engine

#include <cassert>
#include <cmath>
#include <tuple>

#include "simulator/event_engine.hpp"
#include "simulator/event_engine_units.hpp"

namespace orrery::fast {

void EventEngine::dispatch() {
  for (std::size_t next = 0; next < dispatch_due_.size(); ++next) {
    const std::int32_t rank_class = dispatch_due_[next];
    Device& own = device(rank_class);
    own.dispatch_due = false;
    if (own.running >= 0 || own.queued == 0) continue;
    const std::int32_t id = choose(rank_class);
    Stream& chosen = stream(id);
    const std::int32_t instruction = chosen.next->instruction;
    const std::int64_t work = plan(id).work[instruction].picoseconds;
    chosen.wait = Wait::kEndOfWork;
    own.running = id;
    --own.queued;
    times(chosen.step, plan(id).base + instruction).start = now_;
    if (!speeds_vary_ || work == 0) {
      heap_.set(rank_class, now_ + work);
      continue;
    }
    own.speed = 0;
    own.since = now_;
    own.work_left = Wide{work} * full_speed_;
    speed_due(rank_class);
  }
  dispatch_due_.clear();
}

// Of the streams whose compute is ready: highest priority, then earliest step, then program order.
std::int32_t EventEngine::choose(std::int32_t rank_class) const {
  const auto c = static_cast<std::size_t>(rank_class);
  std::int32_t best = -1;
  const auto rank = [&](std::int32_t id) {
    const Stream& one = streams_[static_cast<std::size_t>(id)];
    return std::tuple(-plan(id).priority, one.step, one.next->instruction);
  };
  for (std::int32_t id = layout_.first_stream[c]; id < layout_.first_stream[c + 1]; ++id) {
    if (streams_[static_cast<std::size_t>(id)].wait != Wait::kDevice) continue;
    if (best < 0 || rank(id) < rank(best)) best = id;
  }
  assert(best >= 0);
  return best;
}

void EventEngine::finish_compute(std::int32_t rank_class) {
  Device& own = device(rank_class);
  const std::int32_t id = own.running;
  own.running = -1;
  if (speeds_vary_) speed_due(rank_class);
  if (own.queued > 0 && !own.dispatch_due) {
    own.dispatch_due = true;
    dispatch_due_.push_back(rank_class);
  }
  finish_instruction(id);
}

void EventEngine::speed_due(std::int32_t rank_class) {
  Device& own = device(rank_class);
  if (own.speed_due) return;
  own.speed_due = true;
  speed_due_.push_back(rank_class);
}

// Counts who uses a core now, and has everybody settled whose share that changes.
void EventEngine::settle_cores() {
  const std::size_t told = speed_due_.size();
  for (std::size_t i = 0; i < told; ++i) {
    Device& own = device(speed_due_[i]);
    const JobClass& rank_class = layout_.job.classes[static_cast<std::size_t>(speed_due_[i])];
    const bool uses = own.running >= 0 || (layout_.job.communication_on_core && own.transfers > 0);
    if (rank_class.core_pool < 0 || uses == own.on_core) continue;
    own.on_core = uses;
    Pool& pool = pools_[static_cast<std::size_t>(rank_class.core_pool)];
    pool.users += uses ? rank_class.pool_members : -rank_class.pool_members;
    for (const std::int32_t other : pool.classes)
      if (device(other).running >= 0) speed_due(other);
  }
}

std::int64_t EventEngine::speed_of(std::int32_t rank_class) const {
  const Device& own = devices_[static_cast<std::size_t>(rank_class)];
  if (own.transfers > 0 && layout_.job.communication_on_core) return 0;
  std::int64_t speed = own.transfers > 0 ? slow_speed_ : full_speed_;
  if (own.factor != 1) speed = std::llround(own.factor * static_cast<double>(speed));
  const std::int32_t pool = layout_.job.classes[static_cast<std::size_t>(rank_class)].core_pool;
  if (pool < 0) return speed;
  const std::int64_t users = std::int64_t{1000} * pools_[static_cast<std::size_t>(pool)].users;
  const std::int64_t cores = layout_.job.core_pools[static_cast<std::size_t>(pool)];
  if (users <= cores) return speed;
  // Rounded up, so that what ends on a whole picosecond isn't found a little after it.
  return static_cast<std::int64_t>((Wide{speed} * cores + users - 1) / users);
}

void EventEngine::settle_device(std::int32_t rank_class) {
  Device& own = device(rank_class);
  own.speed_due = false;
  const bool busy = own.running >= 0;
  if (slows_transfers_ && busy != own.counted_busy) count_busy(rank_class, busy);
  if (!busy) return;
  const std::int64_t speed = speed_of(rank_class);
  if (speed == own.speed && speed > 0) return;
  own.work_left -= Wide{own.speed} * (now_ - own.since);
  own.since = now_;
  own.speed = speed;
  heap_.set(rank_class, date_of_end(now_, own.work_left, speed));
}

void EventEngine::apply_changes() {
  const std::vector<Change>& changes = layout_.job.changes;
  for (; next_change_ < changes.size() && changes[next_change_].at.picoseconds <= now_; ++next_change_) {
    const Change& change = changes[next_change_];
    if (change.what == Change::What::kCompute) {
      device(change.index).factor = change.factor;
      speed_due(change.index);
    } else {
      const auto capacity = static_cast<double>(
          layout_.job.link_capacity[static_cast<std::size_t>(change.index)] * kRatePerByte);
      links_.set_capacity(change.index, std::llround(capacity * change.factor));
      stopped_[static_cast<std::size_t>(change.index)] = change.factor == 0;
    }
  }
  change_date_ = next_change_ < changes.size() ? changes[next_change_].at.picoseconds : kForever;
}

// Tells the transfers in which the class takes part; a stream is in one at a time.
void EventEngine::count_busy(std::int32_t rank_class, bool busy) {
  device(rank_class).counted_busy = busy;
  const auto c = static_cast<std::size_t>(rank_class);
  for (std::int32_t id = layout_.first_stream[c]; id < layout_.first_stream[c + 1]; ++id) {
    const std::int32_t slot = stream(id).transfer;
    if (slot < 0) continue;
    active(slot).busy_devices += busy ? 1 : -1;
    if (active(slot).phase == Phase::kFlow) rate_due(slot);
  }
}

}  // namespace orrery::fast

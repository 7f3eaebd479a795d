#include "simulator/one_pass.hpp"

#include <algorithm>

namespace orrery::fast {
namespace {

constexpr std::int64_t kNotYet = -1;

}  // namespace

OnePass::OnePass(const Layout& layout)
    : layout_(layout),
      launch_(layout.job.launch.picoseconds),
      streams_(layout.streams.size()),
      first_waiter_(static_cast<std::size_t>(layout.instruction_count()), -1) {
  meetings_.reserve(layout.job.rendezvous.size());
  for (const Rendezvous& meeting : layout.job.rendezvous)
    meetings_.push_back({0, meeting.participants.size()});
}

std::int64_t OnePass::run_step(const StepRecord* previous, StepRecord& record) {
  previous_ = previous;
  record_ = &record;
  finished_ = 0;
  for (Times& times : record) times.end = kNotYet;
  for (std::size_t s = streams_.size(); s-- > 0;) {
    streams_[s].next = layout_.streams[s].begin;
    if (!first_step_) streams_[s].host += layout_.streams[s].step_launch;
    ready_.push_back(static_cast<std::int32_t>(s));
  }
  first_step_ = false;
  while (!ready_.empty()) {
    const std::int32_t id = ready_.back();
    ready_.pop_back();
    run_stream(id);
  }
  if (finished_ != layout_.instruction_count()) fail_deadlocked(layout_, blocked());
  std::int64_t end = 0;
  for (const Stream& stream : streams_) end = std::max(end, stream.free);
  return end;
}

// Goes on until the stream ends or waits: for an instruction, or for others to meet it.
void OnePass::run_stream(std::int32_t id) {
  const StreamLayout& plan = layout_.streams[static_cast<std::size_t>(id)];
  Stream& stream = streams_[static_cast<std::size_t>(id)];
  while (stream.next != plan.end) {
    const Node& node = *stream.next;
    const std::int64_t start = earliest_start(id, node);
    if (start == kNotYet) return;
    const std::int32_t number = plan.base + node.instruction;
    Times& times = (*record_)[static_cast<std::size_t>(number)];
    times.start = start;
    const std::int32_t met = plan.rendezvous[node.instruction];
    if (met < 0) {
      stream.free = start + plan.work[node.instruction].picoseconds;
      times.end = stream.free;
      ++stream.next;
      ++finished_;
      wake_waiters(number);
      continue;
    }
    Meeting& meeting = meetings_[static_cast<std::size_t>(met)];
    meeting.latest = std::max(meeting.latest, start);
    if (--meeting.missing > 0) return;
    complete(layout_.job.rendezvous[static_cast<std::size_t>(met)], meeting, id);
  }
}

// kNotYet when an instruction that it depends on has no end yet: the stream then waits for that one.
std::int64_t OnePass::earliest_start(std::int32_t id, const Node& node) {
  const StreamLayout& plan = layout_.streams[static_cast<std::size_t>(id)];
  Stream& stream = streams_[static_cast<std::size_t>(id)];
  std::int64_t start = std::max(stream.free, stream.host + (node.instruction + 1) * launch_);
  for (std::int32_t d = node.same_step; d < node.previous_step; ++d) {
    const std::int32_t on = plan.base + plan.dependencies[d];
    const std::int64_t end = (*record_)[static_cast<std::size_t>(on)].end;
    if (end == kNotYet) {
      stream.next_waiter = first_waiter_[static_cast<std::size_t>(on)];
      first_waiter_[static_cast<std::size_t>(on)] = id;
      stream.waits_for = plan.dependencies[d];
      return kNotYet;
    }
    start = std::max(start, end);
  }
  stream.waits_for = -1;
  if (previous_ != nullptr)
    for (std::int32_t d = node.previous_step; d < node.end; ++d)
      start = std::max(start, (*previous_)[static_cast<std::size_t>(plan.base + plan.dependencies[d])].end);
  return start;
}

void OnePass::complete(const Rendezvous& meeting, Meeting& state, std::int32_t last_stream) {
  const TransferLayout& transfer = layout_.transfers[static_cast<std::size_t>(meeting.transfer)];
  const std::int64_t end = state.latest + transfer.latency + transfer.duration;
  for (const Seat& seat : layout_.seats_of(meeting)) {
    const auto number = static_cast<std::size_t>(seat.instruction);
    (*record_)[number].ready = state.latest;
    (*record_)[number].end = end;
    Stream& stream = streams_[static_cast<std::size_t>(seat.stream)];
    stream.free = end;
    ++stream.next;
    if (seat.stream != last_stream) ready_.push_back(seat.stream);
    wake_waiters(seat.instruction);
  }
  finished_ += meeting.participants.size();
  state = {0, meeting.participants.size()};
}

void OnePass::wake_waiters(std::int32_t instruction) {
  std::int32_t& first = first_waiter_[static_cast<std::size_t>(instruction)];
  for (std::int32_t id = first; id >= 0; id = streams_[static_cast<std::size_t>(id)].next_waiter)
    ready_.push_back(id);
  first = -1;
}

std::vector<BlockedStream> OnePass::blocked() const {
  std::vector<BlockedStream> blocked;
  for (std::size_t s = 0; s < streams_.size(); ++s)
    if (streams_[s].next != layout_.streams[s].end)
      blocked.push_back({static_cast<std::int32_t>(s), streams_[s].next->instruction, streams_[s].waits_for});
  return blocked;
}

}  // namespace orrery::fast

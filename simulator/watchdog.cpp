#include "simulator/watchdog.hpp"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

#include "base/units.hpp"
#include "simulator/event_engine_units.hpp"
#include "simulator/hang.hpp"

namespace orrery {

std::string to_text(const Hang& hang) {
  std::string text = fmt::format("hangs in step {} at '{}' of rank {}, which from {} on waits ",
                                 hang.step + 1, hang.instruction, hang.rank.value, format_time(hang.since));
  if (!hang.culprit_instruction.empty()) {
    text += fmt::format("for rank {} at '{}'", hang.culprit.value, hang.culprit_instruction);
  } else if (hang.culprit.valid()) {
    text += fmt::format("for the links of rank {}", hang.culprit.value);
  } else {
    text += "for links that are too slow";
  }
  text += fmt::format(", until the watchdog ends the job at {}", format_time(hang.until));
  for (std::size_t f = 0; f < hang.lost.size(); ++f) {
    text += fmt::format("{}{} of rank {}", f == 0 ? "; lost: " : ", ", to_string(hang.lost[f].what),
                        hang.lost[f].rank.value);
  }
  return text;
}

HangError::HangError(Hang hang) : Error(ErrorKind::kInfeasible, to_text(hang)), hang_(std::move(hang)) {}

namespace fast {

Watchdog::Watchdog(const Job& job) : patience_(job.changes.empty() ? 0 : job.watchdog.picoseconds) {
  if (patience_ > 0) meetings_.resize(job.rendezvous.size());
}

void Watchdog::arrive(std::int32_t rendezvous, std::int32_t stream, std::int64_t now) {
  if (patience_ == 0) return;
  Meeting& meeting = meetings_[static_cast<std::size_t>(rendezvous)];
  if (meeting.since < 0) {
    meeting = {now, stream};
    queue_.emplace_back(now, rendezvous);
  } else if (meeting.since == now) {
    meeting.stream = std::min(meeting.stream, stream);
  }
}

void Watchdog::end(std::int32_t rendezvous) {
  if (patience_ > 0) meetings_[static_cast<std::size_t>(rendezvous)].since = -1;
}

std::int64_t Watchdog::deadline() {
  while (!queue_.empty() &&
         meetings_[static_cast<std::size_t>(queue_.front().second)].since != queue_.front().first) {
    queue_.pop_front();
  }
  if (queue_.empty() || queue_.front().first > kForever - patience_) return kForever;
  return queue_.front().first + patience_;
}

Stall Watchdog::oldest() const {
  assert(!queue_.empty());
  Stall stall;
  stall.since = queue_.front().first;
  for (const auto& [since, rendezvous] : queue_) {
    if (since != stall.since) break;
    const Meeting& meeting = meetings_[static_cast<std::size_t>(rendezvous)];
    if (meeting.since != since || (stall.rendezvous >= 0 && rendezvous > stall.rendezvous)) continue;
    stall.rendezvous = rendezvous;
    stall.stream = meeting.stream;
  }
  return stall;
}

namespace {

RankId rank_at(const Layout& layout, std::int32_t stream) {
  const auto c = static_cast<std::size_t>(layout.streams[static_cast<std::size_t>(stream)].rank_class);
  return layout.job.classes[c].ranks.ranks.front();
}

// Follows who waits for whom from a meeting to a compute that stands still.
class Search {
 public:
  Search(const Layout& layout, const Stall& stall) : layout_(layout), stall_(stall) {}

  // A stream at a compute; nothing when all that is waited for is a transfer under way.
  const BlockedStream* from_meeting(std::int32_t rendezvous) {
    if (!seen_.insert(rendezvous).second) return nullptr;
    for (const Seat& seat : layout_.seats_of(layout_.job.rendezvous[static_cast<std::size_t>(rendezvous)])) {
      const BlockedStream* const seated = find(seat.stream);
      if (seated == nullptr || is_there(*seated, seat)) continue;
      if (const BlockedStream* const found = from_stream(*seated)) return found;
    }
    return nullptr;
  }

 private:
  const StreamLayout& layout_of(std::int32_t stream) const {
    return layout_.streams[static_cast<std::size_t>(stream)];
  }
  const BlockedStream* find(std::int32_t stream) const {
    const auto at = std::ranges::lower_bound(stall_.blocked, stream, {}, &BlockedStream::stream);
    return at != stall_.blocked.end() && at->stream == stream ? &*at : nullptr;
  }
  bool is_there(const BlockedStream& seated, const Seat& seat) const {
    return seated.waits_for < 0 && layout_of(seat.stream).base + seated.instruction == seat.instruction;
  }

  const BlockedStream* from_stream(const BlockedStream& one) {
    const StreamLayout& own = layout_of(one.stream);
    if (one.waits_for >= 0) return from_stream_of(own.rank_class, one.waits_for);
    const std::int32_t rendezvous = own.rendezvous[one.instruction];
    return rendezvous < 0 ? &one : from_meeting(rendezvous);
  }

  // The instruction's own stream stands at it or before it.
  const BlockedStream* from_stream_of(std::int32_t rank_class, std::int32_t instruction) {
    const auto c = static_cast<std::size_t>(rank_class);
    const RoleId role = layout_.job.classes[c].ranks.role;
    const Instruction& awaited =
        layout_.job.program->roles[role.index()].instructions[static_cast<std::size_t>(instruction)];
    const std::int32_t stream = layout_.first_stream[c] + awaited.stream.value;
    if (!seen_streams_.insert(stream).second) return nullptr;
    const BlockedStream* const other = find(stream);
    return other == nullptr ? nullptr : from_stream(*other);
  }

  const Layout& layout_;
  const Stall& stall_;
  std::set<std::int32_t> seen_, seen_streams_;
};

}  // namespace

void fail_hung(const Layout& layout, const Stall& stall, std::vector<SimTime> step_ends) {
  Hang hang;
  const auto first = std::ranges::lower_bound(stall.blocked, stall.stream, {}, &BlockedStream::stream);
  assert(first != stall.blocked.end() && first->stream == stall.stream);
  hang.step = first->step;
  hang.rank = rank_at(layout, stall.stream);
  hang.instruction = instruction_of(layout, stall.stream, first->instruction);
  hang.since = {stall.since};
  hang.until = hang.since + layout.job.watchdog;
  for (const Fault& fault : layout.job.faults)
    if (fault.factor == 0 && fault.active(hang.until)) hang.lost.push_back(fault);
  if (const BlockedStream* const culprit = Search(layout, stall).from_meeting(stall.rendezvous)) {
    hang.culprit = rank_at(layout, culprit->stream);
    hang.culprit_instruction = instruction_of(layout, culprit->stream, culprit->instruction);
  } else {
    const auto link =
        std::ranges::find_if(hang.lost, [](const Fault& fault) { return fault.what != Fault::What::kGpu; });
    if (link != hang.lost.end()) hang.culprit = link->rank;
  }
  hang.step_ends = std::move(step_ends);
  throw HangError(std::move(hang));
}

}  // namespace fast
}  // namespace orrery

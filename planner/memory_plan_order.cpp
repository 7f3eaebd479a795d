#include "planner/memory_plan_order.hpp"

#include <algorithm>
#include <cassert>

#include "planner/memory_plan_peers.hpp"

namespace orrery {
namespace {

using Clock = std::span<std::int32_t>;

void join(Clock clock, std::span<const std::int32_t> other) {
  for (std::size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], other[s]);
}

// Two steps of all members, each instruction as soon as what it waits for is known: the order of the visits
// doesn't matter, only what each instruction hears from those before it.
class ClockRun {
 public:
  ClockRun(const Peers& peers, const std::vector<std::int32_t>& count,
           const std::vector<std::int32_t>& length)
      : peers_(peers), count_(count), length_(length), arrived_(2 * peers.meetings.size(), 0) {
    std::size_t nodes = 0;
    for (const Role* const role : peers.members) {
      base_.push_back(nodes);
      nodes += 2 * role->instructions.size();
      auto& streams = streams_.emplace_back(role->streams.size());
      for (std::size_t i = 0; i < role->instructions.size(); ++i) {
        streams[role->instructions[i].stream.index()].push_back(static_cast<std::int32_t>(i));
      }
      next_.emplace_back(role->streams.size(), 0);
    }
    state_.assign(nodes, kWaits);
    clocks_.assign(nodes * length.size(), 0);
    known_.assign(count.size() * length.size(), 0);
  }

  // False where some instructions can never end.
  bool run() {
    std::size_t left = state_.size();
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t m = 0; m < streams_.size(); ++m) {
        for (std::size_t s = 0; s < streams_[m].size(); ++s) {
          while (advance(m, s)) {
            moved = true;
            --left;
          }
        }
      }
    }
    return left == 0;
  }

  // What each instruction of the first member knows in the second step.
  std::vector<std::int32_t> known() && { return std::move(known_); }

 private:
  enum State : std::uint8_t { kWaits, kStarted, kEnded };

  std::size_t node(std::size_t member, std::size_t step, std::int32_t instruction) const {
    return base_[member] + step * peers_.members[member]->instructions.size() +
           static_cast<std::size_t>(instruction);
  }
  Clock clock(std::size_t node) { return Clock(clocks_).subspan(node * length_.size(), length_.size()); }

  // Moves the stream past its next instruction, if that can end.
  bool advance(std::size_t member, std::size_t stream) {
    const std::vector<std::int32_t>& list = streams_[member][stream];
    std::size_t& next = next_[member][stream];
    if (next == 2 * list.size()) return false;
    const std::size_t step = next / list.size();
    const std::int32_t instruction = list[next % list.size()];
    const std::size_t at = node(member, step, instruction);
    if (state_[at] == kWaits && !start(member, step, instruction)) return false;
    if (state_[at] == kStarted && !end(member, step, instruction)) return false;
    ++next;
    return true;
  }

  bool start(std::size_t member, std::size_t step, std::int32_t instruction) {
    const Role& role = *peers_.members[member];
    const Instruction& its = role.instructions[static_cast<std::size_t>(instruction)];
    const auto dependency = [&](std::int32_t e) {
      const Edge edge = role.edges[static_cast<std::size_t>(e)];
      return node(member, edge.previous_step ? step - 1 : step, edge.instruction);
    };
    const auto outside = [&](std::int32_t e) {  // Before the first step that is looked at.
      return step == 0 && role.edges[static_cast<std::size_t>(e)].previous_step;
    };
    for (std::int32_t e = its.after.begin; e < its.after.end; ++e) {
      if (!outside(e) && state_[dependency(e)] != kEnded) return false;
    }
    const std::size_t at = node(member, step, instruction);
    for (std::int32_t e = its.after.begin; e < its.after.end; ++e) {
      if (!outside(e)) join(clock(at), clock(dependency(e)));
    }
    const std::vector<std::int32_t>& list = streams_[member][its.stream.index()];
    if (const std::size_t next = next_[member][its.stream.index()]; next > 0) {
      join(clock(at), clock(node(member, (next - 1) / list.size(), list[(next - 1) % list.size()])));
    }
    state_[at] = kStarted;
    if (const std::int32_t meeting = meeting_of(member, instruction); meeting >= 0) {
      ++arrived_[2 * static_cast<std::size_t>(meeting) + step];
    }
    note(member, step, instruction);
    return true;
  }

  bool end(std::size_t member, std::size_t step, std::int32_t instruction) {
    const std::size_t at = node(member, step, instruction);
    if (const std::int32_t meeting = meeting_of(member, instruction); meeting >= 0) {
      const auto& parts = peers_.meetings[static_cast<std::size_t>(meeting)];
      if (arrived_[2 * static_cast<std::size_t>(meeting) + step] < parts.size()) return false;
      meet(parts, step);
      return true;
    }
    const PeerInstruction& send = peers_.send_of[member][static_cast<std::size_t>(instruction)];
    if (send.member >= 0) {
      const std::size_t sent = node(static_cast<std::size_t>(send.member), step, send.instruction);
      if (state_[sent] != kEnded) return false;
      join(clock(at), clock(sent));
      note(member, step, instruction);
    }
    finish(member, step, instruction);
    return true;
  }

  // All have started: each ends after the starts of all.
  void meet(const std::vector<PeerInstruction>& parts, std::size_t step) {
    std::vector<std::int32_t> all(length_.size(), 0);
    const auto at = [&](const PeerInstruction& part) {
      return node(static_cast<std::size_t>(part.member), step, part.instruction);
    };
    for (const PeerInstruction& part : parts) join(all, clock(at(part)));
    for (const PeerInstruction& part : parts) {
      join(clock(at(part)), all);
      finish(static_cast<std::size_t>(part.member), step, part.instruction);
    }
  }

  std::int32_t meeting_of(std::size_t member, std::int32_t instruction) const {
    return peers_.meeting_of[member][static_cast<std::size_t>(instruction)];
  }

  void note(std::size_t member, std::size_t step, std::int32_t instruction) {
    if (member != 0 || step != 1) return;
    const Clock from = clock(node(member, step, instruction));
    std::copy(
        from.begin(), from.end(),
        known_.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(instruction) * length_.size()));
  }

  void finish(std::size_t member, std::size_t step, std::int32_t instruction) {
    const std::size_t at = node(member, step, instruction);
    state_[at] = kEnded;
    if (member != 0) return;
    const std::size_t stream =
        peers_.members[0]->instructions[static_cast<std::size_t>(instruction)].stream.index();
    const std::int32_t count =
        count_[static_cast<std::size_t>(instruction)] - (step == 0 ? length_[stream] : 0);
    clock(at)[stream] = std::max(clock(at)[stream], count);
  }

  const Peers& peers_;
  const std::vector<std::int32_t>&count_, &length_;
  std::vector<std::size_t> base_;  // By member: its first node.
  std::vector<std::vector<std::vector<std::int32_t>>>
      streams_;                                 // By member and stream: instructions in order.
  std::vector<std::vector<std::size_t>> next_;  // By member and stream: how many are over.
  std::vector<State> state_;                    // By node: an instruction of a member in a step.
  std::vector<std::int32_t> clocks_;            // By node: what has ended when it starts, then when it ends.
  std::vector<std::size_t> arrived_;            // By meeting and step.
  std::vector<std::int32_t> known_;
};

}  // namespace

void ExecutionOrder::count_streams(const Role& role) {
  length_.assign(role.streams.size(), 0);
  for (const Instruction& instruction : role.instructions) {
    count_.push_back(++length_[instruction.stream.index()]);
  }
  // Of the second of two steps.
  for (std::size_t i = 0; i < count_.size(); ++i) count_[i] += length_[role.instructions[i].stream.index()];
}

ExecutionOrder::ExecutionOrder(const Role& role) {
  count_streams(role);
  const Peers alone = peers_of(role);
  ClockRun run(alone, count_, length_);
  [[maybe_unused]] const bool ends = run.run();
  assert(ends);
  known_ = std::move(run).known();
}

ExecutionOrder::ExecutionOrder(const Program& program, RoleId role)
    : ExecutionOrder(program.roles[role.index()]) {
  std::vector<std::int32_t> agreed;
  for (const Peers& peers : peers_of(program, role)) {
    ClockRun run(peers, count_, length_);
    if (!run.run()) return;
    const std::vector<std::int32_t> known = std::move(run).known();
    if (agreed.empty()) agreed = known;
    for (std::size_t k = 0; k < known.size(); ++k) agreed[k] = std::min(agreed[k], known[k]);
  }
  if (!agreed.empty()) known_ = std::move(agreed);
}

}  // namespace orrery

#pragma once
// Brute force against memory plans: all ranks of a Program over some steps, one event after the other in a
// random order that the Program allows. Written against what an instruction means, without clocks.

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "model/program.hpp"
#include "planner/memory_plan.hpp"

namespace orrery::test {

class Interleaving {
 public:
  Interleaving(const Program& program, const std::vector<MemoryPlan>& plans, std::uint64_t seed)
      : program_(program), plans_(plans), random_(seed) {
    const auto where = coordinates(program);
    std::map<std::tuple<std::int32_t, std::size_t, std::size_t>, std::vector<std::size_t>> sent, received;
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<std::size_t>> met;
    for (std::size_t rank = 0; rank < program.role_of.size(); ++rank) {
      const Role& role = role_of(rank);
      base_.push_back(static_cast<std::int32_t>(size_));
      size_ += kSteps * role.instructions.size();
      std::map<std::int32_t, std::int32_t> ordinal;
      for (std::size_t i = 0; i < role.instructions.size(); ++i) {
        const Work& work = role.instructions[i].work;
        const auto peer = [&](AxisId axis, std::int32_t offset) {
          const Coordinate& own = where[axis.index()][rank];
          const auto& group = program.axes[axis.index()].groups[static_cast<std::size_t>(own.group)];
          const auto n = static_cast<std::int32_t>(group.size());
          return group[static_cast<std::size_t>(((own.position + offset) % n + n) % n)].index();
        };
        if (const auto* const send = std::get_if<Send>(&work)) {
          sent[{send->axis.value, rank, peer(send->axis, send->offset)}].push_back(node(rank, 0, i));
        } else if (const auto* const recv = std::get_if<Recv>(&work)) {
          received[{recv->axis.value, peer(recv->axis, recv->offset), rank}].push_back(node(rank, 0, i));
        } else if (const auto* const collective = std::get_if<Collective>(&work)) {
          const std::int32_t axis = collective->axis.value;
          met[{axis, where[collective->axis.index()][rank].group, ordinal[axis]++}].push_back(
              node(rank, 0, i));
        }
      }
    }
    for (const auto& [channel, list] : received) {
      for (std::size_t k = 0; k < list.size(); ++k) send_of_[list[k]] = sent.at(channel)[k];
    }
    for (const auto& [key, list] : met) {
      for (const std::size_t part : list) meeting_of_[part] = list;
    }
  }

  // Returns pairs of buffers of one rank that were live with a byte in common.
  std::vector<std::string> run() {
    state_.assign(size_, kWaits);
    live_.assign(program_.role_of.size(), {});
    faults_.clear();
    std::vector<std::array<std::size_t, 3>> cursors;  // Rank, stream, next of its instructions.
    for (std::size_t rank = 0; rank < program_.role_of.size(); ++rank) {
      for (std::size_t s = 0; s < role_of(rank).streams.size(); ++s) cursors.push_back({rank, s, 0});
    }
    std::vector<std::int64_t> weight;  // Some streams are much slower than others.
    for (std::size_t c = 0; c < cursors.size(); ++c)
      weight.push_back(std::int64_t{1} << random_.between(0, 12));
    const std::int64_t total = std::accumulate(weight.begin(), weight.end(), std::int64_t{0});
    for (bool moved = true; moved;) {
      moved = false;
      for (int tries = 0; tries < 20 && !moved; ++tries) {
        std::int64_t pick = random_.between(0, total - 1);
        std::size_t c = 0;
        while (pick >= weight[c]) pick -= weight[c++];
        moved = step(cursors[c]);
      }
      for (std::size_t c = 0; c < cursors.size() && !moved; ++c) moved = step(cursors[c]);
    }
    const bool all_ended = std::all_of(state_.begin(), state_.end(), [](State s) { return s == kEnded; });
    if (!all_ended) faults_.push_back("the program blocks itself");
    return faults_;
  }

 private:
  static constexpr std::size_t kSteps = 3;
  enum State { kWaits, kStarted, kTouches, kEnded };

  const Role& role_of(std::size_t rank) const { return program_.roles[program_.role_of[rank].index()]; }
  std::size_t node(std::size_t rank, std::size_t at_step, std::size_t i) const {
    return static_cast<std::size_t>(base_[rank]) + at_step * role_of(rank).instructions.size() + i;
  }

  // The next event of a stream, if it can happen now.
  bool step(std::array<std::size_t, 3>& cursor) {
    auto& [rank, stream, next] = cursor;
    const Role& role = role_of(rank);
    std::vector<std::size_t>& list = lists_[{program_.role_of[rank].index(), stream}];
    if (list.empty()) {
      for (std::size_t i = 0; i < role.instructions.size(); ++i) {
        if (role.instructions[i].stream.index() == stream) list.push_back(i);
      }
    }
    if (list.empty() || next == kSteps * list.size()) return false;
    const std::size_t at_step = next / list.size(), i = list[next % list.size()];
    State& state = state_[node(rank, at_step, i)];
    const std::size_t shift = at_step * role.instructions.size();
    const bool receives = std::holds_alternative<Recv>(role.instructions[i].work);
    if (state == kWaits) {
      const Range after = role.instructions[i].after;
      for (std::int32_t e = after.begin; e < after.end; ++e) {
        const Edge edge = role.edges[static_cast<std::size_t>(e)];
        if (edge.previous_step && at_step == 0) continue;
        const std::size_t of = edge.previous_step ? at_step - 1 : at_step;
        if (state_[node(rank, of, static_cast<std::size_t>(edge.instruction))] != kEnded) return false;
      }
      state = kStarted;
      if (!receives) touch(rank, at_step, i, state);
      return true;
    }
    if (receives) {
      const std::size_t send = send_of_.at(node(rank, 0, i));
      const std::size_t peer = rank_of(send);
      const std::size_t sent = send + at_step * role_of(peer).instructions.size();
      if (state == kStarted) {
        if (state_[sent] == kWaits) return false;
        touch(rank, at_step, i, state);
        return true;
      }
      if (state_[sent] != kEnded) return false;
    }
    if (const auto meeting = meeting_of_.find(node(rank, at_step, i) - shift); meeting != meeting_of_.end()) {
      for (const std::size_t part : meeting->second) {
        const std::size_t other = part + at_step * role_of(rank_of(part)).instructions.size();
        if (state_[other] == kWaits) return false;
      }
    }
    state = kEnded;
    leave(rank, at_step, i);
    ++next;
    return true;
  }

  std::size_t rank_of(std::size_t first_step_node) const {
    const auto next =
        std::upper_bound(base_.begin(), base_.end(), static_cast<std::int32_t>(first_step_node));
    return static_cast<std::size_t>(next - base_.begin()) - 1;
  }

  struct Use {
    std::size_t buffer = 0, step = 0;
    int touchers = 0;  // That have not ended.
  };

  void touch(std::size_t rank, std::size_t at_step, std::size_t i, State& state) {
    state = kTouches;
    const Role& role = role_of(rank);
    const MemoryPlan& plan = plans_[program_.role_of[rank].index()];
    const Range operands = role.instructions[i].operands;
    for (std::int32_t o = operands.begin; o < operands.end; ++o) {
      const std::size_t b = role.operands[static_cast<std::size_t>(o)].buffer.index();
      std::vector<Use>& live = live_[rank];
      const auto known = std::find_if(live.begin(), live.end(),
                                      [&](const Use& use) { return use.buffer == b && use.step == at_step; });
      if (role.buffers[b].persistent || known != live.end()) continue;
      for (const Use& use : live) {
        if (use.buffer == b && std::count(plan.unordered.begin(), plan.unordered.end(),
                                          BufferId(static_cast<std::int64_t>(b)))) {
          continue;  // Reported as a fault of the Program.
        }
        const BufferId taken = role.buffers[b].in_place_of;
        const bool its_own = taken.valid() && taken.index() == use.buffer && use.step == at_step;
        if (its_own && use.touchers == operands_on(role.instructions[i], role, use.buffer)) continue;
        const std::int64_t begin = plan.offsets[b], other = plan.offsets[use.buffer];
        if (begin < other + role.buffers[use.buffer].bytes && other < begin + role.buffers[b].bytes) {
          faults_.push_back("rank " + std::to_string(rank) + ": buffers " + std::to_string(b) + " and " +
                            std::to_string(use.buffer));
        }
      }
      live.push_back({b, at_step, touchers(rank, b)});
    }
  }

  void leave(std::size_t rank, std::size_t at_step, std::size_t i) {
    const Role& role = role_of(rank);
    const Range operands = role.instructions[i].operands;
    for (std::int32_t o = operands.begin; o < operands.end; ++o) {
      const std::size_t b = role.operands[static_cast<std::size_t>(o)].buffer.index();
      std::vector<Use>& live = live_[rank];
      for (Use& use : live) {
        if (use.buffer == b && use.step == at_step) --use.touchers;
      }
      std::erase_if(live, [](const Use& use) { return use.touchers == 0; });
    }
  }

  static int operands_on(const Instruction& instruction, const Role& role, std::size_t b) {
    int count = 0;
    for (std::int32_t o = instruction.operands.begin; o < instruction.operands.end; ++o) {
      count += role.operands[static_cast<std::size_t>(o)].buffer.index() == b ? 1 : 0;
    }
    return count;
  }

  int touchers(std::size_t rank, std::size_t b) {
    std::vector<int>& of = touchers_[program_.role_of[rank].index()];
    const Role& role = role_of(rank);
    if (of.empty()) {
      of.assign(role.buffers.size(), 0);
      for (const Operand& operand : role.operands) ++of[operand.buffer.index()];
    }
    return of[b];
  }

  const Program& program_;
  const std::vector<MemoryPlan>& plans_;
  Random random_;
  std::size_t size_ = 0;
  std::vector<std::int32_t> base_;  // By rank: its first node.
  std::map<std::size_t, std::size_t> send_of_;
  std::map<std::size_t, std::vector<std::size_t>> meeting_of_;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> lists_;
  std::map<std::size_t, std::vector<int>> touchers_;
  std::vector<State> state_;
  std::vector<std::vector<Use>> live_;  // By rank.
  std::vector<std::string> faults_;
};

}  // namespace orrery::test

#pragma once
// Runs a CollectiveProgram over real arrays, message by message, as its streams and dependencies allow.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "planner/collective_program.hpp"

namespace orrery::testing {

// Bytes on the wire that the busiest rank sends.
inline std::int64_t most_sent(const CollectiveSpec& spec, const CollectiveProgram& collective) {
  std::int64_t most = 0;
  for (std::int32_t rank = 0; rank < spec.ranks; ++rank) {
    std::int64_t sent = 0;
    const Role& role =
        collective.program.roles[collective.program.role_of[static_cast<std::size_t>(rank)].index()];
    for (const Instruction& instruction : role.instructions)
      if (const auto* send = std::get_if<Send>(&instruction.work)) sent += send->bytes;
    most = std::max(most, sent);
  }
  return most;
}

class CollectiveRun {
 public:
  // `hasty`: of all messages that could be exchanged always the one that comes last in its role's order.
  CollectiveRun(const CollectiveSpec& spec, const CollectiveProgram& collective, bool hasty)
      : spec_(spec),
        collective_(collective),
        program_(collective.program),
        hasty_(hasty),
        elements_(in_any_parts(spec.kind) ? 259 : 13 * spec.ranks) {
    for (std::int32_t rank = 0; rank < spec.ranks; ++rank) fill(rank);
    match();
    run();
    if (stuck.empty()) compare();
  }

  std::string stuck, wrong;

 private:
  // Which part is whose is nobody's business: parts may be uneven.
  static bool in_any_parts(CollectiveKind kind) {
    return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast;
  }
  using Arrays = std::array<std::vector<double>, 3>;

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static double value(std::int64_t rank, std::int64_t element) {
    return static_cast<double>(rank * rank + 1) * 1000 + static_cast<double>(element);
  }
  std::pair<std::int64_t, std::int64_t> part(std::int64_t rank) const {
    return {elements_ * rank / spec_.ranks, elements_ * (rank + 1) / spec_.ranks};
  }
  const Role& role(std::int64_t rank) const { return program_.roles[program_.role_of[index(rank)].index()]; }

  // What isn't the rank's to know is −1.
  void fill(std::int32_t rank) {
    Arrays arrays;
    for (auto& array : arrays) array.assign(index(elements_), -1);
    const bool part_only = spec_.kind == CollectiveKind::kAllGather;
    const auto [begin, end] = part(rank);
    for (std::int64_t i = 0; i < elements_; ++i) {
      if (part_only && (i < begin || i >= end)) continue;
      if (spec_.kind == CollectiveKind::kBroadcast && rank != spec_.root) continue;
      arrays[0][index(i)] = value(rank, i);
    }
    data_.push_back(std::move(arrays));
  }

  struct End {
    std::int32_t rank = 0, instruction = 0;
  };

  void match() {
    peer_.resize(index(spec_.ranks));
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<End>> sends, recvs;
    const auto where = coordinates(program_);
    for (std::int32_t rank = 0; rank < spec_.ranks; ++rank) {
      const auto& instructions = role(rank).instructions;
      peer_[index(rank)].resize(instructions.size());
      done_.emplace_back(instructions.size(), 0);
      const auto peer = [&](AxisId axis, std::int32_t offset) {
        const Coordinate at = where[axis.index()][index(rank)];
        const auto& group = program_.axes[axis.index()].groups[index(at.group)];
        const auto size = static_cast<std::int32_t>(group.size());
        return group[index(((at.position + offset) % size + size) % size)].value;
      };
      for (std::size_t i = 0; i < instructions.size(); ++i) {
        const End end{rank, static_cast<std::int32_t>(i)};
        if (const auto* send = std::get_if<Send>(&instructions[i].work))
          sends[{send->axis.value, rank, peer(send->axis, send->offset)}].push_back(end);
        if (const auto* recv = std::get_if<Recv>(&instructions[i].work))
          recvs[{recv->axis.value, peer(recv->axis, recv->offset), rank}].push_back(end);
      }
    }
    for (const auto& [key, list] : sends)
      for (std::size_t k = 0; k < list.size(); ++k)
        peer_[index(list[k].rank)][index(list[k].instruction)] = recvs[key][k];
  }

  bool ready(const End& end) const {
    const Role& of = role(end.rank);
    const Instruction& instruction = of.instructions[index(end.instruction)];
    for (std::int32_t i = 0; i < end.instruction; ++i)
      if (of.instructions[index(i)].stream == instruction.stream && !done_[index(end.rank)][index(i)])
        return false;
    for (std::int32_t e = instruction.after.begin; e < instruction.after.end; ++e)
      if (!done_[index(end.rank)][index(of.edges[index(e)].instruction)]) return false;
    return true;
  }

  // First not yet done per rank and stream.
  std::vector<End> heads(std::int32_t rank) const {
    std::vector<End> list;
    std::vector<char> seen(role(rank).streams.size(), 0);
    for (std::size_t i = 0; i < done_[index(rank)].size(); ++i) {
      const std::size_t stream = role(rank).instructions[i].stream.index();
      if (done_[index(rank)][i] || seen[stream]) continue;
      seen[stream] = 1;
      list.push_back({rank, static_cast<std::int32_t>(i)});
    }
    if (hasty_) std::ranges::reverse(list);
    return list;
  }

  void run() {
    std::size_t left = 0;
    for (std::int32_t rank = 0; rank < spec_.ranks; ++rank) left += role(rank).instructions.size();
    for (bool moved = true; moved && left > 0;) {
      moved = false;
      for (std::int32_t r = 0; r < spec_.ranks; ++r) {
        const std::int32_t rank = hasty_ ? spec_.ranks - 1 - r : r;
        for (const End& head : heads(rank)) {
          const Work& work = role(rank).instructions[index(head.instruction)].work;
          if (!std::holds_alternative<Send>(work)) continue;
          const End other = peer_[index(rank)][index(head.instruction)];
          if (!ready(head) || !ready(other)) continue;
          exchange(head, other);
          done_[index(rank)][index(head.instruction)] = 1;
          done_[index(other.rank)][index(other.instruction)] = 1;
          left -= 2;
          moved = true;
          if (hasty_) break;
        }
      }
    }
    if (left > 0) stuck = std::to_string(left) + " instructions left";
  }

  void exchange(const End& from, const End& to) {
    const auto moves = [&](const End& end) {
      return collective_.moves_of[program_.role_of[index(end.rank)].index()][index(end.instruction)];
    };
    std::vector<double> message;
    const Range out = moves(from), in = moves(to);
    for (std::int32_t m = out.begin; m < out.end; ++m) {
      const DataMove& move = collective_.moves[index(m)];
      const auto [begin, end] = collective_.elements(move, RankId(from.rank), elements_);
      const auto& array = data_[index(from.rank)][static_cast<std::size_t>(move.buffer)];
      message.insert(message.end(), array.begin() + begin, array.begin() + end);
    }
    std::size_t room = 0, taken = 0;
    for (std::int32_t m = in.begin; m < in.end; ++m) {
      const auto [begin, end] = collective_.elements(collective_.moves[index(m)], RankId(to.rank), elements_);
      room += index(end - begin);
    }
    if (room != message.size()) {
      wrong = "a message isn't as long as its receiver expects";
      return;
    }
    for (std::int32_t m = in.begin; m < in.end; ++m) {
      const DataMove& move = collective_.moves[index(m)];
      const auto [begin, end] = collective_.elements(move, RankId(to.rank), elements_);
      auto& array = data_[index(to.rank)][static_cast<std::size_t>(move.buffer)];
      for (std::int64_t i = begin; i < end; ++i)
        array[index(i)] = (move.adds ? array[index(i)] : 0) + message[taken++];
    }
  }

  void compare() {
    for (std::int32_t rank = 0; rank < spec_.ranks; ++rank)
      for (std::int64_t i = 0; i < elements_; ++i)
        if (const double expected = result(rank, i);
            expected >= 0 && actual(rank, i) != expected && wrong.empty())
          wrong = "rank " + std::to_string(rank) + " element " + std::to_string(i) + ": " +
                  std::to_string(actual(rank, i)) + ", expected " + std::to_string(expected);
  }

  double actual(std::int32_t rank, std::int64_t i) const {
    return data_[index(rank)][spec_.kind == CollectiveKind::kAllToAll ? 1 : 0][index(i)];
  }

  // −1: of no interest.
  double result(std::int32_t rank, std::int64_t i) const {
    const auto [begin, end] = part(rank);
    const bool own = i >= begin && i < end;
    double sum = 0;
    for (std::int64_t r = 0; r < spec_.ranks; ++r) sum += value(r, i);
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce: return sum;
      case CollectiveKind::kReduceScatter: return own ? sum : -1;
      case CollectiveKind::kBroadcast: return value(spec_.root, i);
      case CollectiveKind::kAllGather:
        for (std::int64_t r = 0; r < spec_.ranks; ++r)
          if (i >= part(r).first && i < part(r).second) return value(r, i);
        return -1;
      case CollectiveKind::kAllToAll: break;
    }
    return own ? -1 : sent_part(rank, i);  // The own part stays where it is.
  }

  // Element i is in the part of the result that comes from some rank: the same place in that rank's part for
  // us.
  double sent_part(std::int32_t rank, std::int64_t i) const {
    for (std::int64_t r = 0; r < spec_.ranks; ++r) {
      const auto [begin, end] = part(r);
      if (i < begin || i >= end) continue;
      const auto [first, last] = part(rank);
      return first + (i - begin) < last ? value(r, first + (i - begin)) : -1;
    }
    return -1;
  }

  const CollectiveSpec& spec_;
  const CollectiveProgram& collective_;
  const Program& program_;
  bool hasty_;
  std::int64_t elements_;
  std::vector<Arrays> data_;
  std::vector<std::vector<End>> peer_;
  std::vector<std::vector<char>> done_;
};

}  // namespace orrery::testing

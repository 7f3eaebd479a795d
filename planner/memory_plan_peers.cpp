#include "planner/memory_plan_peers.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace orrery {
namespace {

// Which neighbours and which groups a role's instructions name.
struct RoleReach {
  std::set<std::pair<std::int32_t, std::int32_t>> neighbours;  // Axis, offset.
  std::set<std::int32_t> axes;                                 // Of its collectives.
};

RoleReach reach_of(const Role& role) {
  RoleReach reach;
  for (const Instruction& instruction : role.instructions) {
    if (const auto* const send = std::get_if<Send>(&instruction.work)) {
      reach.neighbours.emplace(send->axis.value, send->offset);
    } else if (const auto* const recv = std::get_if<Recv>(&instruction.work)) {
      reach.neighbours.emplace(recv->axis.value, recv->offset);
    } else if (const auto* const collective = std::get_if<Collective>(&instruction.work)) {
      reach.axes.insert(collective->axis.value);
    }
  }
  return reach;
}

class PeerFinder {
 public:
  PeerFinder(const Program& program, std::size_t most_instructions)
      : program_(program), coordinates_(coordinates(program)), most_instructions_(most_instructions) {}

  // The ranks joined to this one, itself first, nearest first.
  std::vector<RankId> joined(RankId rank) {
    std::vector<RankId> ranks = {rank};
    std::set<RankId> known = {rank};
    std::size_t instructions = role(rank).instructions.size();
    for (std::size_t next = 0; next < ranks.size(); ++next) {
      for (const auto& [axis, offset] : reach(ranks[next]).neighbours) {
        const RankId peer = neighbour(ranks[next], axis, offset);
        if (!peer.valid() || !program_.role_of[peer.index()].valid() || known.contains(peer)) continue;
        instructions += role(peer).instructions.size();
        if (instructions > most_instructions_) return ranks;
        known.insert(peer);
        ranks.push_back(peer);
      }
    }
    return ranks;
  }

  // Equal for two ranks whose members do the same together.
  std::vector<std::int32_t> signature(const std::vector<RankId>& ranks) {
    std::vector<std::int32_t> words;
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> groups;  // In order of appearance.
    for (const RankId rank : ranks) {
      words.push_back(program_.role_of[rank.index()].value);
      for (const auto& [axis, offset] : reach(rank).neighbours) {
        words.push_back(position(ranks, neighbour(rank, axis, offset)));
      }
      for (const std::int32_t axis : reach(rank).axes) {
        const auto ordinal = static_cast<std::int32_t>(groups.size());
        words.push_back(groups.try_emplace({axis, at(axis, rank).group}, ordinal).first->second);
      }
    }
    return words;
  }

  Peers match(const std::vector<RankId>& ranks) {
    Peers peers;
    using Channel = std::tuple<std::int32_t, std::int32_t, std::int32_t>;    // Axis, sender, receiver.
    using Operation = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // Axis, group, ordinal.
    std::map<Channel, std::vector<std::int32_t>> sends, receives;            // Instructions, in order.
    std::map<Operation, std::vector<PeerInstruction>> operations;
    for (std::size_t m = 0; m < ranks.size(); ++m) {
      const auto member = static_cast<std::int32_t>(m);
      const Role& its = role(ranks[m]);
      peers.members.push_back(&its);
      peers.send_of.emplace_back(its.instructions.size());
      peers.meeting_of.emplace_back(its.instructions.size(), -1);
      std::map<std::int32_t, std::int32_t> ordinals;  // By axis.
      for (std::size_t i = 0; i < its.instructions.size(); ++i) {
        const Work& work = its.instructions[i].work;
        const auto instruction = static_cast<std::int32_t>(i);
        if (const auto* const send = std::get_if<Send>(&work)) {
          const std::int32_t to = position(ranks, neighbour(ranks[m], send->axis.value, send->offset));
          if (to >= 0) sends[{send->axis.value, member, to}].push_back(instruction);
        } else if (const auto* const recv = std::get_if<Recv>(&work)) {
          const std::int32_t from = position(ranks, neighbour(ranks[m], recv->axis.value, recv->offset));
          if (from >= 0) receives[{recv->axis.value, from, member}].push_back(instruction);
        } else if (const auto* const collective = std::get_if<Collective>(&work)) {
          const std::int32_t axis = collective->axis.value, ordinal = ordinals[axis]++;
          const bool needs_all = collective->kind != CollectiveKind::kBroadcast && collective->bytes > 0;
          if (needs_all)
            operations[{axis, at(axis, ranks[m]).group, ordinal}].push_back({member, instruction});
        }
      }
    }
    for (const auto& [channel, receiving] : receives) {
      const auto& [axis, from, to] = channel;
      const std::vector<std::int32_t>& sending = sends[channel];
      for (std::size_t k = 0; k < std::min(sending.size(), receiving.size()); ++k) {
        peers.send_of[static_cast<std::size_t>(to)][static_cast<std::size_t>(receiving[k])] = {from,
                                                                                               sending[k]};
      }
    }
    for (const auto& [operation, meeting] : operations) {
      if (meeting.size() < 2) continue;
      for (const PeerInstruction& part : meeting) {
        peers.meeting_of[static_cast<std::size_t>(part.member)][static_cast<std::size_t>(part.instruction)] =
            static_cast<std::int32_t>(std::ssize(peers.meetings));
      }
      peers.meetings.push_back(meeting);
    }
    return peers;
  }

 private:
  const Role& role(RankId rank) const { return program_.roles[program_.role_of[rank.index()].index()]; }
  const RoleReach& reach(RankId rank) {
    const RoleId of = program_.role_of[rank.index()];
    const auto known = reach_.find(of);
    return known != reach_.end() ? known->second : reach_.emplace(of, reach_of(role(rank))).first->second;
  }
  const Coordinate& at(std::int32_t axis, RankId rank) const {
    return coordinates_[static_cast<std::size_t>(axis)][rank.index()];
  }
  RankId neighbour(RankId rank, std::int32_t axis, std::int32_t offset) const {
    const Coordinate& own = at(axis, rank);
    if (own.group < 0) return {};
    const auto& group =
        program_.axes[static_cast<std::size_t>(axis)].groups[static_cast<std::size_t>(own.group)];
    const std::int64_t size = std::ssize(group);
    const std::int64_t position = ((std::int64_t{own.position} + offset) % size + size) % size;
    return group[static_cast<std::size_t>(position)];
  }
  static std::int32_t position(const std::vector<RankId>& ranks, RankId rank) {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    return found == ranks.end() ? -1 : static_cast<std::int32_t>(found - ranks.begin());
  }

  const Program& program_;
  std::vector<std::vector<Coordinate>> coordinates_;
  std::map<RoleId, RoleReach> reach_;
  std::size_t most_instructions_;
};

}  // namespace

Peers peers_of(const Role& role) {
  Peers peers;
  peers.members = {&role};
  peers.send_of.emplace_back(role.instructions.size());
  peers.meeting_of.emplace_back(role.instructions.size(), -1);
  return peers;
}

std::vector<Peers> peers_of(const Program& program, RoleId role, std::size_t most_instructions) {
  PeerFinder finder(program, most_instructions);
  std::vector<Peers> all;
  std::set<std::vector<std::int32_t>> known;
  for (std::size_t rank = 0; rank < program.role_of.size(); ++rank) {
    if (program.role_of[rank] != role) continue;
    const std::vector<RankId> ranks = finder.joined(RankId(static_cast<std::int64_t>(rank)));
    if (known.insert(finder.signature(ranks)).second) all.push_back(finder.match(ranks));
  }
  return all;
}

}  // namespace orrery

#include "planner/rank_traffic.hpp"

#include <map>
#include <tuple>

#include "simulator/collective_cost.hpp"

namespace orrery {
namespace {

// Payloads of one role's collectives on one axis, for one purpose, by what a group of n makes of them.
struct Payload {
  double twice = 0;     // All-reduces.
  double once = 0;      // Gathers and scatters.
  double through = 0;   // Broadcasts.
  double each_way = 0;  // All-to-alls.
};
using RolePayloads = std::map<std::tuple<std::int32_t, std::int32_t, Purpose>, Payload>;  // By role and axis.
using RoleSends = std::map<std::tuple<std::int32_t, Purpose>, double>;                    // By offset.

struct RoleCounts {
  std::map<AxisId, RoleSends> sends;
  double to_host_bytes = 0, from_host_bytes = 0;
};

void add(const Collective& collective, Payload& payload) {
  const auto bytes = static_cast<double>(collective.bytes);
  switch (collective.kind) {
    case CollectiveKind::kAllReduce: payload.twice += bytes; break;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter: payload.once += bytes; break;
    case CollectiveKind::kBroadcast: payload.through += bytes; break;
    case CollectiveKind::kAllToAll: payload.each_way += bytes; break;
  }
}

RoleCounts count(const Role& role, std::int32_t number, RolePayloads& payloads) {
  RoleCounts counts;
  for (const Instruction& instruction : role.instructions) {
    if (const auto* const collective = std::get_if<Collective>(&instruction.work)) {
      add(*collective, payloads[{number, collective->axis.value, instruction.purpose}]);
    } else if (const auto* const send = std::get_if<Send>(&instruction.work)) {
      counts.sends[send->axis][{send->offset, instruction.purpose}] += static_cast<double>(send->bytes);
    } else if (const auto* const copy = std::get_if<Copy>(&instruction.work)) {
      (copy->to_host ? counts.to_host_bytes : counts.from_host_bytes) += static_cast<double>(copy->bytes);
    }
  }
  return counts;
}

// Members agree about their collectives, so the first one's role speaks for all.
void add_groups(const Program& program, const RolePayloads& payloads, RankTraffic& traffic) {
  for (std::size_t a = 0; a < program.axes.size(); ++a) {
    const auto axis = static_cast<std::int32_t>(a);
    for (const std::vector<RankId>& ranks : program.axes[a].groups) {
      if (ranks.size() < 2 || !program.role_of[ranks.front().index()].valid()) continue;
      const std::int32_t role = program.role_of[ranks.front().index()].value;
      const auto n = static_cast<double>(ranks.size());
      for (auto at = payloads.lower_bound({role, axis, Purpose{}});
           at != payloads.end() && std::get<0>(at->first) == role && std::get<1>(at->first) == axis; ++at) {
        const Payload& payload = at->second;
        GroupTraffic group{AxisId(axis), ranks, std::get<2>(at->first)};
        group.ring_bytes = payload.twice * ring_share(CollectiveKind::kAllReduce, n) +
                           payload.once * ring_share(CollectiveKind::kAllGather, n) +
                           payload.through * ring_share(CollectiveKind::kBroadcast, n);
        group.pair_bytes = payload.each_way / n;
        traffic.groups.push_back(std::move(group));
      }
    }
  }
}

void add_pairs(const Program& program, const std::vector<RoleCounts>& counts, RankTraffic& traffic) {
  const auto at = coordinates(program);
  std::map<std::tuple<RankId, RankId, AxisId, Purpose>, double> bytes;
  for (std::size_t r = 0; r < program.role_of.size(); ++r) {
    if (!program.role_of[r].valid()) continue;
    for (const auto& [axis, sends] : counts[program.role_of[r].index()].sends) {
      const Coordinate& here = at[axis.index()][r];
      const auto& group = program.axes[axis.index()].groups[static_cast<std::size_t>(here.group)];
      const auto size = static_cast<std::int32_t>(std::ssize(group));
      for (const auto& [what, sent] : sends) {
        const std::int32_t position = ((here.position + std::get<0>(what)) % size + size) % size;
        bytes[{RankId(static_cast<std::int64_t>(r)), group[static_cast<std::size_t>(position)], axis,
               std::get<1>(what)}] += sent;
      }
    }
  }
  for (const auto& [key, sent] : bytes) {
    const auto& [from, to, axis, purpose] = key;
    traffic.pairs.push_back({axis, from, to, purpose, sent});
  }
}

}  // namespace

RankTraffic rank_traffic(const Program& program) {
  RankTraffic traffic;
  traffic.world_size = program.world_size();
  traffic.axes = program.axes;
  RolePayloads payloads;
  std::vector<RoleCounts> counts;
  for (const Role& role : program.roles) {
    counts.push_back(count(role, static_cast<std::int32_t>(std::ssize(counts)), payloads));
  }
  add_groups(program, payloads, traffic);
  add_pairs(program, counts, traffic);
  for (std::size_t r = 0; r < program.role_of.size(); ++r) {
    if (!program.role_of[r].valid()) continue;
    const RoleCounts& of = counts[program.role_of[r].index()];
    if (of.to_host_bytes + of.from_host_bytes > 0) {
      traffic.copies.push_back({RankId(static_cast<std::int64_t>(r)), of.to_host_bytes, of.from_host_bytes});
    }
  }
  return traffic;
}

}  // namespace orrery

#include "model/program_verify_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/units.hpp"

namespace orrery {
namespace {

// A rank that idles, among the roles.
constexpr std::int32_t kIdle = -1;

struct PointToPoint {
  std::int32_t instruction = 0;
  std::int32_t offset = 0;
  std::int64_t bytes = 0;
};

// What one role says on one axis, in its order.
struct AxisTraffic {
  std::vector<PointToPoint> sends;
  std::vector<PointToPoint> recvs;
  std::vector<std::int32_t> collectives;
  std::set<std::int32_t> send_offsets;
  std::set<std::int32_t> recv_offsets;

  bool silent() const { return sends.empty() && recvs.empty() && collectives.empty(); }
};

AxisTraffic traffic_of(const Role& role, AxisId axis) {
  AxisTraffic traffic;
  for (std::size_t i = 0; i < role.instructions.size(); ++i) {
    const auto index = static_cast<std::int32_t>(i);
    const Work& work = role.instructions[i].work;
    if (const auto* const send = std::get_if<Send>(&work); send != nullptr && send->axis == axis) {
      traffic.sends.push_back({index, send->offset, send->bytes});
      traffic.send_offsets.insert(send->offset);
    } else if (const auto* const recv = std::get_if<Recv>(&work); recv != nullptr && recv->axis == axis) {
      traffic.recvs.push_back({index, recv->offset, recv->bytes});
      traffic.recv_offsets.insert(recv->offset);
    } else if (const auto* const all = std::get_if<Collective>(&work); all != nullptr && all->axis == axis) {
      traffic.collectives.push_back(index);
    }
  }
  return traffic;
}

// Position `offset` further in a ring of `size`.
std::int64_t wrap(std::int64_t offset, std::int64_t size) { return ((offset % size) + size) % size; }

std::vector<PointToPoint> toward(const std::vector<PointToPoint>& all, std::int64_t offset,
                                 std::int64_t size) {
  std::vector<PointToPoint> chosen;
  for (const PointToPoint& one : all) {
    if (wrap(one.offset, size) == offset) chosen.push_back(one);
  }
  return chosen;
}

class AxisChecker {
 public:
  AxisChecker(const Program& program, AxisId axis, std::vector<std::string>& faults)
      : program_(program), axis_(program.axes[axis.index()]), faults_(faults) {
    for (const Role& role : program.roles) traffic_.push_back(traffic_of(role, axis));
    silent_ = std::ranges::all_of(traffic_, [](const AxisTraffic& traffic) { return traffic.silent(); });
  }

  void check() {
    if (silent_) return;
    check_membership();
    std::set<std::vector<std::int32_t>> seen;  // Groups with the same roles in the same order say the same.
    for (const std::vector<RankId>& group : axis_.groups) {
      std::vector<std::int32_t> roles;
      roles.reserve(group.size());
      for (const RankId rank : group) roles.push_back(program_.role_of[rank.index()].value);
      if (!seen.insert(roles).second) continue;
      for (std::size_t i = 1; i < group.size(); ++i) check_collectives(roles, group, i);
      for (std::size_t i = 0; i < group.size(); ++i) check_peers(roles, group, i);
    }
  }

 private:
  void check_membership() {
    std::vector<bool> member(program_.role_of.size());
    for (const std::vector<RankId>& group : axis_.groups) {
      for (const RankId rank : group) member[rank.index()] = true;
    }
    std::set<RoleId> told;
    for (std::size_t rank = 0; rank < member.size(); ++rank) {
      const RoleId role = program_.role_of[rank];
      if (member[rank] || !role.valid() || traffic_[role.index()].silent()) continue;
      if (!told.insert(role).second) continue;
      faults_.push_back(fmt::format("role '{}' communicates on axis '{}', but rank {} is in no group of it",
                                    program_.roles[role.index()].name, axis_.name, rank));
    }
  }

  const AxisTraffic& traffic(std::int32_t role) const {
    static const AxisTraffic kNone;
    return role == kIdle ? kNone : traffic_[static_cast<std::size_t>(role)];
  }

  std::string who(std::int32_t role, RankId rank) const {
    if (role == kIdle) return fmt::format("rank {} (idle)", rank.value);
    return fmt::format("rank {} (role '{}')", rank.value,
                       program_.roles[static_cast<std::size_t>(role)].name);
  }

  std::string name(std::int32_t role, std::int32_t instruction) const {
    const Role& of = program_.roles[static_cast<std::size_t>(role)];
    return instruction_name(program_, of.instructions[static_cast<std::size_t>(instruction)]);
  }

  const Collective& collective(std::int32_t role, std::int32_t instruction) const {
    const Role& of = program_.roles[static_cast<std::size_t>(role)];
    return std::get<Collective>(of.instructions[static_cast<std::size_t>(instruction)].work);
  }

  // The member at `position` against the first one.
  void check_collectives(const std::vector<std::int32_t>& roles, const std::vector<RankId>& group,
                         std::size_t position) {
    const std::int32_t a = roles[0];
    const std::int32_t b = roles[position];
    if (a == b || !compared_.insert({a, b}).second) return;
    const std::vector<std::int32_t>& of_a = traffic(a).collectives;
    const std::vector<std::int32_t>& of_b = traffic(b).collectives;
    const std::size_t both = std::min(of_a.size(), of_b.size());
    for (std::size_t k = 0; k < both; ++k) {
      const Collective& x = collective(a, of_a[k]);
      const Collective& y = collective(b, of_b[k]);
      if (x.kind == y.kind && x.bytes == y.bytes && x.dtype == y.dtype) continue;
      faults_.push_back(
          fmt::format("axis '{}': collective {} is {} {} {} ({}) for {} but {} {} {} ({}) for {}", axis_.name,
                      k, to_string(x.kind), exact_bytes(x.bytes), to_string(x.dtype), name(a, of_a[k]),
                      who(a, group[0]), to_string(y.kind), exact_bytes(y.bytes), to_string(y.dtype),
                      name(b, of_b[k]), who(b, group[position])));
      return;
    }
    if (of_a.size() == of_b.size()) return;
    const bool longer_a = of_a.size() > of_b.size();
    faults_.push_back(fmt::format("axis '{}': {} has {} collectives but {} has {}; the first one more is {}",
                                  axis_.name, who(a, group[0]), of_a.size(), who(b, group[position]),
                                  of_b.size(), longer_a ? name(a, of_a[both]) : name(b, of_b[both])));
  }

  void check_peers(const std::vector<std::int32_t>& roles, const std::vector<RankId>& group,
                   std::size_t position) {
    const auto size = static_cast<std::int64_t>(group.size());
    const AxisTraffic& own = traffic(roles[position]);
    for (const std::int32_t offset : own.send_offsets) {
      const std::int64_t distance = wrap(offset, size);
      if (distance == 0) {
        report_self(roles[position], group[position], own.sends, offset, "sends");
      } else {
        const std::size_t peer =
            static_cast<std::size_t>(static_cast<std::int64_t>(position) + distance) % group.size();
        check_pair(roles, group, position, peer, distance);
      }
    }
    for (const std::int32_t offset : own.recv_offsets) {
      const std::int64_t distance = wrap(-static_cast<std::int64_t>(offset), size);
      if (distance == 0) {
        report_self(roles[position], group[position], own.recvs, offset, "receives");
      } else {
        const auto from =
            static_cast<std::size_t>(static_cast<std::int64_t>(position) + size - distance) % group.size();
        check_pair(roles, group, from, position, distance);
      }
    }
  }

  void report_self(std::int32_t role, RankId rank, const std::vector<PointToPoint>& all, std::int32_t offset,
                   std::string_view verb) {
    if (!selves_.insert({role, verb}).second) return;
    const auto first = std::ranges::find(all, offset, &PointToPoint::offset);
    faults_.push_back(
        fmt::format("axis '{}': {}: {} {} to or from itself: {:+} in its group leads back to it", axis_.name,
                    who(role, rank), name(role, first->instruction), verb, offset));
  }

  // All sends from position `from` to position `to`, `distance` further in the ring, against the receives.
  void check_pair(const std::vector<std::int32_t>& roles, const std::vector<RankId>& group, std::size_t from,
                  std::size_t to, std::int64_t distance) {
    const auto size = static_cast<std::int64_t>(group.size());
    const std::int32_t a = roles[from];
    const std::int32_t b = roles[to];
    if (!paired_.insert({a, b, distance, size}).second) return;
    const std::vector<PointToPoint> sends = toward(traffic(a).sends, distance, size);
    const std::vector<PointToPoint> recvs = toward(traffic(b).recvs, wrap(-distance, size), size);
    const std::string pair =
        fmt::format("axis '{}': {} to {}", axis_.name, who(a, group[from]), who(b, group[to]));
    const std::size_t both = std::min(sends.size(), recvs.size());
    for (std::size_t k = 0; k < both; ++k) {
      if (sends[k].bytes == recvs[k].bytes) continue;
      faults_.push_back(fmt::format("{}: {} sends {} but {} receives {}", pair, name(a, sends[k].instruction),
                                    exact_bytes(sends[k].bytes), name(b, recvs[k].instruction),
                                    exact_bytes(recvs[k].bytes)));
      return;
    }
    if (sends.size() > both) {
      faults_.push_back(fmt::format("{}: {} sends but {} receives; {} has no receive", pair, sends.size(),
                                    recvs.size(), name(a, sends[both].instruction)));
    } else if (recvs.size() > both) {
      faults_.push_back(fmt::format("{}: {} sends but {} receives; {} has no send", pair, sends.size(),
                                    recvs.size(), name(b, recvs[both].instruction)));
    }
  }

  const Program& program_;
  const Axis& axis_;
  std::vector<std::string>& faults_;
  std::vector<AxisTraffic> traffic_;  // By role.
  bool silent_ = false;
  std::set<std::pair<std::int32_t, std::int32_t>> compared_;
  std::set<std::pair<std::int32_t, std::string_view>> selves_;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>> paired_;
};

}  // namespace

std::vector<std::string> verify_communication(const Program& program) {
  std::vector<std::string> faults;
  for (std::size_t axis = 0; axis < program.axes.size(); ++axis) {
    AxisChecker(program, AxisId(static_cast<std::int64_t>(axis)), faults).check();
  }
  return faults;
}

}  // namespace orrery

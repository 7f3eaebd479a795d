#include "planner/placement_levels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "model/program_ranks.hpp"
#include "simulator/engine.hpp"

namespace orrery {
namespace {

// One that latency decides, and one that bandwidth does.
constexpr std::array<std::int64_t, 2> kBytes = {64 << 10, 256 << 20};

SimTime time_of(const std::string& text, const PlacementMachine& machine, const Profile& profile,
                const std::vector<std::int32_t>& device_of) {
  Program program = parse_program(text);
  program.device_of = device_of;
  return simulate(program, machine.cluster(), profile, {}).makespan;
}

std::string header(std::string_view axes, const Axis& axis, std::size_t world) {
  std::vector<RankId> ranks;
  for (const auto& group : axis.groups) ranks.insert(ranks.end(), group.begin(), group.end());
  std::ranges::sort(ranks);
  return fmt::format("world {}\n{}role all (ranks {}):\n", world, axes, format_ranks(ranks));
}

}  // namespace

std::optional<GroupLevels> group_levels(const Axis& axis, const PlacementMachine& machine,
                                        const std::vector<std::int32_t>& device_of) {
  GroupLevels levels;
  std::size_t per_node = 0;
  for (const std::vector<RankId>& group : axis.groups) {
    std::map<std::int32_t, std::vector<RankId>> by_node;
    for (const RankId rank : group) by_node[machine.node(device_of[rank.index()])].push_back(rank);
    if (per_node == 0) per_node = by_node.begin()->second.size();
    if (by_node.size() < 2 || per_node < 2) return std::nullopt;
    const std::size_t first = levels.across.size();
    levels.across.resize(first + per_node);
    for (auto& [node, ranks] : by_node) {
      if (ranks.size() != per_node) return std::nullopt;
      std::ranges::sort(ranks, {}, [&](RankId rank) { return device_of[rank.index()]; });
      for (std::size_t i = 0; i < per_node; ++i) levels.across[first + i].push_back(ranks[i]);
      levels.inside.push_back(std::move(ranks));
    }
  }
  if (levels.inside.empty()) return std::nullopt;
  return levels;
}

std::vector<LevelTimes> level_times(const RankTraffic& traffic, const PlacementMachine& machine,
                                    const Profile& profile, const std::vector<std::int32_t>& device_of) {
  std::vector<LevelTimes> all;
  for (std::size_t a = 0; a < traffic.axes.size(); ++a) {
    const Axis& axis = traffic.axes[a];
    const bool used = std::ranges::any_of(traffic.groups, [&](const GroupTraffic& group) {
      return group.axis.index() == a && group.purpose == Purpose::kGradientReduce &&
             group.ring_bytes >= static_cast<double>(kBytes.front());  // Not the norm's one number.
    });
    const auto levels = used ? group_levels(axis, machine, device_of) : std::nullopt;
    if (!levels) continue;
    const std::string flat =
        header(fmt::format("axis flat {}\n", format_groups(axis.groups)), axis, device_of.size());
    const std::string by_level =
        header(fmt::format("axis inside {}\naxis across {}\n", format_groups(levels->inside),
                           format_groups(levels->across)),
               axis, device_of.size());
    LevelTimes times;
    times.axis = axis.name;
    times.per_node = static_cast<std::int32_t>(std::ssize(levels->inside.front()));
    times.nodes = static_cast<std::int32_t>(std::ssize(levels->across.front()));
    for (const std::int64_t bytes : kBytes) {
      times.bytes = bytes;
      times.flat =
          time_of(flat + fmt::format("a = all-reduce {} in flat\n", bytes), machine, profile, device_of);
      times.by_level = time_of(by_level + fmt::format("s = reduce-scatter {0} in inside\n"
                                                      "a = all-reduce {1} in across after s\n"
                                                      "g = all-gather {0} in inside after a\n",
                                                      bytes, bytes / times.per_node),
                               machine, profile, device_of);
      all.push_back(times);
    }
  }
  return all;
}

}  // namespace orrery

// Hop limits: whether a placement keeps to one, and one that does.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/program_ranks.hpp"
#include "planner/placement_search.hpp"

namespace orrery {
namespace {

std::string group_text(const HopLimit& limit, std::size_t group) {
  return fmt::format("{} group {} (ranks {})", limit.axis, group, format_ranks(limit.groups[group]));
}

// Sets of GPUs of a node, each near enough to all others of its set, of `size` each.
std::vector<std::vector<std::int32_t>> near_sets(const PlacementMachine& machine, std::int32_t hops,
                                                 std::size_t size) {
  std::vector<std::vector<std::int32_t>> sets;
  const std::int32_t gpus = machine.cluster().node.gpus;
  std::vector<char> taken(static_cast<std::size_t>(gpus), 0);
  for (std::int32_t first = 0; first < gpus; ++first) {
    if (taken[static_cast<std::size_t>(first)]) continue;
    std::vector<std::int32_t> set;
    for (std::int32_t gpu = first; gpu < gpus && set.size() < size; ++gpu) {
      const auto near = [&](std::int32_t other) { return machine.within_hops(gpu, other, hops); };
      if (!taken[static_cast<std::size_t>(gpu)] && std::ranges::all_of(set, near)) set.push_back(gpu);
    }
    if (set.size() < size) continue;
    for (const std::int32_t gpu : set) taken[static_cast<std::size_t>(gpu)] = 1;
    sets.push_back(std::move(set));
  }
  return sets;
}

[[noreturn]] void refuse(const HopLimit& limit, const PlacementMachine& machine, std::size_t group,
                         std::size_t places) {
  const std::int32_t gpus = machine.cluster().node.gpus;
  std::int32_t from = 0, to = 0, least = 0;  // The nearest pair that is too far apart.
  for (std::int32_t a = 0; a < gpus; ++a) {
    for (std::int32_t b = a + 1; b < gpus; ++b) {
      const std::int32_t apart = machine.pcie_hops(a, b);
      if (apart > limit.hops && (least == 0 || apart < least)) from = a, to = b, least = apart;
    }
  }
  const std::string pair =
      least > 0
          ? fmt::format("GPUs {} and {} of a node are {} apart; allow {}, or make {} smaller", from, to,
                        least, least, limit.axis)
          : fmt::format(
                "a node has {} GPUs, and those of two are further apart than any limit; make {} smaller",
                gpus, limit.axis);
  fail(ErrorKind::kInfeasible,
       "plan.placement.max_pcie_hops: no GPUs are left for {}: the nodes have room for {} groups of {} "
       "within {} hops. "
       "{}",
       group_text(limit, group), places, limit.groups[group].size(), limit.hops, pair);
}

}  // namespace

HopLimit hop_limit(const RankTraffic& traffic, const PlacementRequest& request) {
  HopLimit limit{request.max_pcie_hops, request.hop_group, {}};
  if (request.max_pcie_hops == kNoHopLimit) return limit;
  std::vector<std::string> known;
  for (const Axis& axis : traffic.axes) {
    known.push_back(axis.name);
    if (axis.name != request.hop_group) continue;
    for (const auto& group : axis.groups) {
      if (group.size() > 1) limit.groups.push_back(group);
    }
    return limit;
  }
  fail(ErrorKind::kInfeasible, "plan.placement.hop_group: the plan has no groups \"{}\"; it has {}",
       request.hop_group, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
}

std::string hop_fault(const HopLimit& limit, const PlacementMachine& machine,
                      const std::vector<std::int32_t>& device_of) {
  for (std::size_t g = 0; g < limit.groups.size(); ++g) {
    const auto& group = limit.groups[g];
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::size_t j = i + 1; j < group.size(); ++j) {
        const std::int32_t a = device_of[group[i].index()], b = device_of[group[j].index()];
        if (machine.within_hops(a, b, limit.hops)) continue;
        const std::string apart = machine.node(a) != machine.node(b)
                                      ? "on different nodes"
                                      : fmt::format("{} hops apart", machine.pcie_hops(a, b));
        return fmt::format("{}: ranks {} (node {}, GPU {}) and {} (node {}, GPU {}) are {}, the limit is {}",
                           group_text(limit, g), group[i].value, machine.node(a), machine.gpu(a),
                           group[j].value, machine.node(b), machine.gpu(b), apart, limit.hops);
      }
    }
  }
  return "";
}

std::vector<std::int32_t> pack_groups(const HopLimit& limit, const PlacementMachine& machine) {
  const auto devices = static_cast<std::size_t>(machine.devices());
  std::vector<std::int32_t> device_of(devices, -1);
  std::vector<char> taken(devices, 0);
  const auto put = [&](RankId rank, std::int32_t device) {
    device_of[rank.index()] = device;
    taken[static_cast<std::size_t>(device)] = 1;
  };
  std::size_t size = 0;
  for (const auto& group : limit.groups) size = std::max(size, group.size());
  const auto sets = near_sets(machine, limit.hops, size);
  const std::size_t places = sets.size() * static_cast<std::size_t>(machine.cluster().nodes);
  for (std::size_t g = 0; g < limit.groups.size(); ++g) {
    if (g >= places) refuse(limit, machine, g, places);
    const std::int32_t node = static_cast<std::int32_t>(g / sets.size());
    for (std::size_t i = 0; i < limit.groups[g].size(); ++i) {
      put(limit.groups[g][i], node * machine.cluster().node.gpus + sets[g % sets.size()][i]);
    }
  }
  std::size_t next = 0;
  for (std::size_t rank = 0; rank < devices; ++rank) {
    if (device_of[rank] >= 0) continue;
    while (taken[next]) ++next;
    put(RankId(static_cast<std::int64_t>(rank)), static_cast<std::int32_t>(next));
  }
  return device_of;
}

}  // namespace orrery

#include "report/link_traffic.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "planner/placement_machine.hpp"
#include "report/metrics.hpp"

namespace orrery {
namespace {

struct Used {
  std::int64_t bytes = 0;
  double bytes_per_s = 0;
  LinkKind kind = LinkKind::kPcie;
  std::vector<Interval> moving;
};
using UsedLinks = std::map<LinkInstance, Used>;

RouteKind route_kind(const Router& router, const Path& path) {
  if (path.crosses_network) return RouteKind::kNetwork;
  const bool nvlink = std::ranges::all_of(
      path.links, [&](const PathLink& link) { return link_kind(router, link.link) == LinkKind::kNvLink; });
  return nvlink ? RouteKind::kNvLink : RouteKind::kPcie;
}

RankId peer_of(const Program& program, const std::vector<std::vector<Coordinate>>& at, RankId rank,
               const Send& send) {
  const Coordinate& here = at[send.axis.index()][rank.index()];
  const auto& group = program.axes[send.axis.index()].groups[static_cast<std::size_t>(here.group)];
  const auto size = static_cast<std::int32_t>(std::ssize(group));
  return group[static_cast<std::size_t>(((here.position + send.offset) % size + size) % size)];
}

// Mean over links of a kind, each with its capacity's weight.
double utilisation(const UsedLinks& links, double step_s, bool nvlink) {
  double bytes = 0, capacity = 0;
  for (const auto& [link, used] : links) {
    if ((used.kind == LinkKind::kNvLink) != nvlink || used.kind == LinkKind::kNetwork) continue;
    bytes += static_cast<double>(used.bytes);
    capacity += used.bytes_per_s * step_s;
  }
  return capacity > 0 ? bytes / capacity : 0;
}

}  // namespace

double LinkTraffic::share(RouteKind kind) const {
  const std::int64_t all = total_bytes();
  return all > 0 ? static_cast<double>(bytes[static_cast<std::size_t>(kind)]) / static_cast<double>(all) : 0;
}

LinkTraffic link_traffic(const Program& program, const Cluster& cluster, const Timeline& timeline) {
  const Router router(cluster);
  const auto at = coordinates(program);
  LinkTraffic result;
  UsedLinks links;
  for (const Span& span : timeline.spans) {
    const RankClass& of = timeline.classes[static_cast<std::size_t>(span.rank_class)];
    const Role& role = program.roles[of.role.index()];
    const auto* const send = std::get_if<Send>(&role.instructions[static_cast<std::size_t>(span.first)].work);
    if (send == nullptr) continue;
    const RankId from = of.ranks.front(), to = peer_of(program, at, from, *send);
    const Path path = router.path(program.device_of[from.index()], program.device_of[to.index()]);
    result.bytes[static_cast<std::size_t>(route_kind(router, path))] += send->bytes;
    for (const PathLink& link : path.links) {
      Used& used = links[link.link];
      used.kind = link_kind(router, link.link);
      used.bytes_per_s = link.bytes_per_s;
      used.bytes += send->bytes;
      add_folded(used.moving, span.ready, span.end, timeline.step_start, timeline.step_time);
    }
  }
  const double step_s = timeline.step_time.seconds();
  double carried = 0, capacity = 0;
  for (const NodeLink& link : cluster.node.links) {
    if (link.kind != LinkKind::kNvLink) continue;
    result.nvlinks += 2 * cluster.nodes;
    capacity += 2 * cluster.nodes * link.bytes_per_s * step_s;
  }
  for (auto& [link, used] : links) {
    if (used.kind != LinkKind::kNvLink) continue;
    ++result.nvlinks_used;
    carried += static_cast<double>(used.bytes);
    result.nvlink_busy += IntervalSet(std::move(used.moving)).length().seconds() / step_s;
  }
  if (result.nvlinks_used > 0) result.nvlink_busy /= result.nvlinks_used;
  if (capacity > 0) result.nvlink_utilisation_all = carried / capacity;
  result.nvlink_utilisation = utilisation(links, step_s, true);
  result.pcie_utilisation = utilisation(links, step_s, false);
  return result;
}

}  // namespace orrery

#include "report/placement_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

const AxisSpread* spread_of(const PlacementRow& row, const std::string& axis) {
  const auto found = std::ranges::find(row.cost.axes, axis, &AxisSpread::axis);
  return found == row.cost.axes.end() ? nullptr : &*found;
}

// "0.0/0": mean and largest hops between members that share a node; with the groups that don't lie on one.
std::string hops_text(const AxisSpread* spread) {
  if (spread == nullptr) return "-";
  std::string text =
      spread->pairs > 0 ? fmt::format("{:.1f}/{}", spread->mean_hops, spread->largest_hops) : "-";
  if (spread->over_nodes > 0) text += fmt::format(" +{}", spread->over_nodes);
  return text;
}

std::string line(const PlacementRow& row, const std::string& axis) {
  std::string text =
      fmt::format("  {:<20}{:<12}{:<12}", to_string(row.policy), to_string(row.nic), to_string(row.numa));
  if (!row.refused.empty()) return text + "refused: " + row.refused + "\n";
  const CrossingBytes& crossing = row.cost.crossing;
  return text + fmt::format("{:>11}{:>13}{:>9}{:>9}{:>9}{:>9}{:>12}{:>14.3f}\n",
                            format_time(from_seconds(row.step_time_s)), format_bytes(crossing.bytes),
                            percent(crossing.share(crossing.nvlink)), percent(crossing.share(crossing.numa)),
                            percent(crossing.share(crossing.network)), percent(crossing.share(crossing.leaf)),
                            hops_text(spread_of(row, axis)), row.cost.link_seconds);
}

// How groups lie in the quickest placement.
std::string spread_lines(const PlacementRow& row) {
  std::string text = fmt::format("\n  groups under {}:\n  {:<14}{:>7}{:>6}{:>12}{:>13}{:>12}{:>12}{:>10}\n",
                                 to_string(row.policy), "axis", "groups", "size", "bytes", "over nodes",
                                 "most nodes", "mean hops", "largest");
  for (const AxisSpread& axis : row.cost.axes) {
    text += fmt::format("  {:<14}{:>7}{:>6}{:>12}{:>13}{:>12}{:>12.2f}{:>10}\n", axis.axis, axis.groups,
                        axis.size, format_bytes(axis.bytes), axis.over_nodes, axis.most_nodes, axis.mean_hops,
                        axis.largest_hops);
  }
  for (const LevelTimes& times : row.levels) {
    text += fmt::format(
        "  all-reduce of {} on every {} group at once: {} flat, {} by level ({} GPUs on each of {} nodes)\n",
        format_bytes(static_cast<double>(times.bytes)), times.axis, format_time(times.flat),
        format_time(times.by_level), times.per_node, times.nodes);
  }
  if (!row.placement.made_by.empty()) text += fmt::format("  made by {}\n", row.placement.made_by);
  return text;
}

Json row_json(const PlacementRow& row) {
  Json json = {{"policy", to_string(row.policy)}, {"nic", to_string(row.nic)}, {"numa", to_string(row.numa)}};
  if (!row.refused.empty()) {
    json["refused"] = row.refused;
    return json;
  }
  const CrossingBytes& crossing = row.cost.crossing;
  json.update({{"step_time_s", row.step_time_s},
               {"makespan_s", row.makespan_s},
               {"rank_classes", row.rank_classes},
               {"bytes", crossing.bytes},
               {"nvlink_bytes", crossing.nvlink},
               {"cross_numa_bytes", crossing.numa},
               {"cross_node_bytes", crossing.network},
               {"cross_leaf_bytes", crossing.leaf},
               {"host_bytes", crossing.host},
               {"nvlink_share", crossing.share(crossing.nvlink)},
               {"cross_numa_share", crossing.share(crossing.numa)},
               {"cross_node_share", crossing.share(crossing.network)},
               {"cross_leaf_share", crossing.share(crossing.leaf)},
               {"link_seconds", row.cost.link_seconds}});
  Json axes = Json::array();
  for (const AxisSpread& axis : row.cost.axes) {
    axes.push_back({{"axis", axis.axis},
                    {"groups", axis.groups},
                    {"size", axis.size},
                    {"bytes", axis.bytes},
                    {"groups_over_nodes", axis.over_nodes},
                    {"most_nodes", axis.most_nodes},
                    {"mean_pcie_hops", axis.mean_hops},
                    {"largest_pcie_hops", axis.largest_hops}});
  }
  json["axes"] = std::move(axes);
  Json levels = Json::array();
  for (const LevelTimes& times : row.levels) {
    levels.push_back({{"axis", times.axis},
                      {"gpus_per_node", times.per_node},
                      {"nodes", times.nodes},
                      {"bytes", times.bytes},
                      {"flat_s", times.flat.seconds()},
                      {"by_level_s", times.by_level.seconds()}});
  }
  json["all_reduces"] = std::move(levels);
  json["made_by"] = row.placement.made_by;
  json["gpu_of_rank"] = row.placement.device_of;
  return json;
}

}  // namespace

std::string to_table(const std::vector<PlacementRow>& rows, const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  const std::string& axis = scenario.placement.hop_group;
  std::string text = fmt::format("{}: {} on {} x {} ({} nodes of {})\n\n", scenario.name, scenario.model.name,
                                 format_count(cluster.gpu_count()), cluster.node.gpu.name,
                                 format_count(cluster.nodes), cluster.node.name);
  text += fmt::format("  {:<20}{:<12}{:<12}{:>11}{:>13}{:>9}{:>9}{:>9}{:>9}{:>12}{:>14}\n", "", "", "", "",
                      "sent", "NVLink", "cross", "cross", "cross", axis + " hops", "link");
  text += fmt::format("  {:<20}{:<12}{:<12}{:>11}{:>13}{:>9}{:>9}{:>9}{:>9}{:>12}{:>14}\n", "policy", "NIC",
                      "NUMA", "step time", "a step", "only", "NUMA", "node", "leaf", "mean/max", "seconds");
  for (const PlacementRow& row : rows) text += line(row, axis);
  const auto made = std::ranges::find_if(rows, [](const PlacementRow& row) { return row.refused.empty(); });
  if (made != rows.end()) {
    const auto best = std::ranges::min_element(rows.begin(), rows.end(), {}, [](const PlacementRow& row) {
      return row.refused.empty() ? row.step_time_s : 1e300;
    });
    text += spread_lines(*best);
  }
  text +=
      "\n  Shares are of the bytes sent; a byte counts in each column whose boundary it crosses. hops: PCIe "
      "links and\n"
      "  links between CPUs between two members of a group on one node; +n: groups that lie on several "
      "nodes. link\n"
      "  seconds: time for which links are occupied, summed over all links; what graph and exact make "
      "small.\n";
  return text;
}

std::string to_json(const std::vector<PlacementRow>& rows, const Scenario& scenario) {
  Json list = Json::array();
  for (const PlacementRow& row : rows) list.push_back(row_json(row));
  const PlacementRequest& request = scenario.placement;
  const bool limited = request.max_pcie_hops != kNoHopLimit;
  const Json json = {{"scenario", scenario.name},
                     {"engine", scenario.engine},
                     {"gpus", scenario.cluster.gpu_count()},
                     {"gpus_per_node", scenario.cluster.node.gpus},
                     {"hop_group", request.hop_group},
                     {"max_pcie_hops", limited ? Json(request.max_pcie_hops) : Json(nullptr)},
                     {"placements", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery

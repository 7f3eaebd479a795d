#include "report/fabric_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "scenarios/show.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }
std::string rate(double bytes_per_s) { return fmt::format("{:.2f}", bytes_per_s / 1e9); }

std::string routing_text(const FabricRow& row) {
  std::string text(to_string(row.routing));
  if (row.queue_pairs > 1) text += fmt::format(", {} QPs", row.queue_pairs);
  return text;
}

std::string line(const FabricRow& row, bool jobs) {
  std::string text =
      fmt::format("  {:<12}{:<18}{:>9}{:>10}{:>9}", to_string(row.pattern), routing_text(row),
                  format_count(row.flows), rate(row.slowest_bytes_per_s), rate(row.mean_bytes_per_s));
  text += row.by_leaf_pairs ? fmt::format("{:>9}", "-") : fmt::format("{:>9}", percent(row.slowed));
  text += fmt::format("{:>9}", percent(row.idle_links));
  if (jobs) text += fmt::format("{:>8.2f}{:>8.2f}", row.mean_slowdown, row.worst_slowdown);
  if (row.by_leaf_pairs) text += "  by pairs of leaf switches";
  if (row.settled < 1) text += fmt::format("  weights never rest with {} of seeds", percent(1 - row.settled));
  return text + "\n";
}

std::string depth_lines(const std::vector<DepthRow>& rows) {
  std::string text = fmt::format("\n  {:<12}{:>12}", "message", "least depth");
  for (const auto& [depth, unused] : rows.front().rates)
    text += fmt::format("{:>10}", fmt::format("depth {}", depth));
  text += "  GB/s of one connection\n";
  for (const DepthRow& row : rows) {
    text +=
        fmt::format("  {:<12}{:>12}", format_bytes(static_cast<double>(row.message_bytes)), row.least_depth);
    for (const auto& one : row.rates) text += fmt::format("{:>10}", rate(one.rate.bytes_per_s));
    text += fmt::format("  then the limit is {}\n", to_string(row.rates.back().rate.limit));
  }
  return text;
}

Json row_json(const FabricRow& row) {
  Json json = {{"pattern", to_string(row.pattern)},
               {"routing", to_string(row.routing)},
               {"queue_pairs", row.queue_pairs},
               {"flows", row.flows},
               {"by_leaf_pairs", row.by_leaf_pairs},
               {"slowest_bytes_per_s", row.slowest_bytes_per_s},
               {"mean_bytes_per_s", row.mean_bytes_per_s},
               {"idle_links", row.idle_links},
               {"settled", row.settled},
               {"mean_slowdown", row.mean_slowdown},
               {"worst_slowdown", row.worst_slowdown}};
  if (!row.by_leaf_pairs) json.update({{"slowed", row.slowed}, {"slowest_flow", row.slowest_flow}});
  return json;
}

}  // namespace

std::string to_table(const std::vector<FabricRow>& rows, const std::vector<DepthRow>& depths,
                     const Scenario& scenario) {
  const TrafficRequest& request = scenario.traffic;
  const bool jobs = request.jobs > 1;
  std::string text = fmt::format("{}\n", describe(scenario.cluster));
  if (jobs)
    text += fmt::format("{} jobs, {}\n", request.jobs,
                        request.interleaved ? "interleaved node by node" : "packed");
  text += fmt::format("\n  {:<12}{:<18}{:>9}{:>10}{:>9}{:>9}{:>9}{}\n", "traffic", "routing", "flows",
                      "slowest", "mean", "slowed", "idle", jobs ? "  slower   worst" : "");
  for (const FabricRow& row : rows) text += line(row, jobs);
  text += fmt::format(
      "\n  slowest, mean: GB/s per network card, of {:.0f}; a collective is as fast as its slowest flow\n"
      "  slowed: flows slower than with adaptive routing; idle: cables of the fabric that carry nothing\n",
      scenario.cluster.node.nic_bytes_per_s / 1e9);
  if (jobs) text += "  slower, worst: how many times as long a job takes as alone, mean and worst\n";
  if (!depths.empty()) text += depth_lines(depths);
  return text;
}

std::string to_json(const std::vector<FabricRow>& rows, const std::vector<DepthRow>& depths,
                    const Scenario& scenario) {
  Json json = {{"cluster", describe(scenario.cluster)},
               {"nic_bytes_per_s", scenario.cluster.node.nic_bytes_per_s},
               {"jobs", scenario.traffic.jobs},
               {"interleaved", scenario.traffic.interleaved},
               {"rows", Json::array()},
               {"connections", Json::array()}};
  for (const FabricRow& row : rows) json["rows"].push_back(row_json(row));
  for (const DepthRow& row : depths) {
    Json rates = Json::array();
    for (const auto& one : row.rates)
      rates.push_back({{"depth", one.depth},
                       {"bytes_per_s", one.rate.bytes_per_s},
                       {"limit", to_string(one.rate.limit)}});
    json["connections"].push_back(
        {{"message_bytes", row.message_bytes}, {"least_depth", row.least_depth}, {"rates", rates}});
  }
  return json.dump(2) + "\n";
}

}  // namespace orrery

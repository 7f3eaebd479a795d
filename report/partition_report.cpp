#include "report/partition_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/units.hpp"
#include "planner/memory.hpp"
#include "report/metrics.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

std::string limits_text(const PartitionRow& row) {
  if (row.strategy != PartitionStrategy::kNvLinkNeighbourhood || row.limits == PieceLimits{}) return "any";
  return row.limits.max == PieceLimits{}.max ? fmt::format("{}-", row.limits.min)
                                             : fmt::format("{}-{}", row.limits.min, row.limits.max);
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

std::string line(const PartitionRow& row) {
  std::string text = fmt::format("  {:<21}{:>10}", to_string(row.strategy), limits_text(row));
  if (!row.refused.empty()) return text + "  refused: " + row.refused + "\n";
  text += fmt::format("{:>4} on {:<2}{:>10}{:>11}", row.pieces, row.devices,
                      format_time(from_seconds(row.step_time_s)),
                      format_bytes(static_cast<double>(row.links.total_bytes())));
  text += fmt::format("{:>8}{:>8}{:>7}{:>7}", percent(row.links.share(RouteKind::kNvLink)),
                      percent(row.links.share(RouteKind::kPcie)), percent(row.links.nvlink_utilisation),
                      percent(row.links.nvlink_busy));
  text += fmt::format("{:>8}{:>10}{}\n", percent(row.compute_balance),
                      format_bytes(static_cast<double>(row.peak_memory_bytes)), row.fits ? "" : " !");
  return text;
}

Json limits_json(const PartitionRow& row) {
  if (row.strategy != PartitionStrategy::kNvLinkNeighbourhood) return nullptr;
  const bool bounded = row.limits.max != PieceLimits{}.max;
  return {{"min", row.limits.min}, {"max", bounded ? Json(row.limits.max) : Json(nullptr)}};
}

Json row_json(const PartitionRow& row) {
  Json json = {{"strategy", to_string(row.strategy)}, {"limits", limits_json(row)}};
  if (!row.refused.empty()) {
    json["refused"] = row.refused;
    return json;
  }
  const LinkTraffic& links = row.links;
  const auto bytes = [&](RouteKind kind) { return links.bytes[static_cast<std::size_t>(kind)]; };
  json.update({{"pieces", row.pieces},
               {"smallest_piece_ops", row.smallest_piece},
               {"largest_piece_ops", row.largest_piece},
               {"devices", row.devices},
               {"candidates", row.candidates},
               {"step_time_s", row.step_time_s},
               {"makespan_s", row.makespan_s},
               {"sent_bytes", links.total_bytes()},
               {"nvlink_bytes", bytes(RouteKind::kNvLink)},
               {"pcie_bytes", bytes(RouteKind::kPcie)},
               {"network_bytes", bytes(RouteKind::kNetwork)},
               {"nvlink_share", links.share(RouteKind::kNvLink)},
               {"pcie_share", links.share(RouteKind::kPcie)},
               {"nvlinks", links.nvlinks},
               {"nvlinks_used", links.nvlinks_used},
               {"nvlink_utilisation", links.nvlink_utilisation},
               {"nvlink_utilisation_all", links.nvlink_utilisation_all},
               {"nvlink_busy", links.nvlink_busy},
               {"pcie_utilisation", links.pcie_utilisation},
               {"compute_fraction", row.compute_fraction},
               {"compute_balance", row.compute_balance},
               {"peak_memory_bytes", row.peak_memory_bytes},
               {"fits", row.fits}});
  return json;
}

}  // namespace

PartitionRow summarize(const PartitionProblem& problem, PartitionStrategy strategy, const PieceLimits& limits,
                       const Partition& partition, const Program& program, const Timeline& timeline) {
  PartitionRow row;
  row.strategy = strategy;
  row.limits = limits;
  row.pieces = partition.pieces();
  const std::vector<std::int32_t> sizes = piece_sizes(partition);
  row.smallest_piece = std::ranges::min(sizes);
  row.largest_piece = std::ranges::max(sizes);
  row.devices = program.world_size();
  row.candidates = partition.candidates;
  row.step_time_s = timeline.step_time.seconds();
  row.makespan_s = timeline.makespan.seconds();
  const Cluster& cluster = problem.router().cluster();
  row.links = link_traffic(program, cluster, timeline);
  double busiest_s = 0, all_s = 0;
  for (const Activity& activity : activities(program, timeline)) {
    busiest_s = std::max(busiest_s, activity.compute.length().seconds());
    all_s += activity.compute.length().seconds();
  }
  const double mean_s = all_s / problem.devices();
  row.compute_fraction = mean_s / row.step_time_s;
  row.compute_balance = mean_s / busiest_s;
  for (const Role& role : program.roles) {
    row.peak_memory_bytes = std::max(row.peak_memory_bytes, peak_memory(role).bytes);
  }
  row.fits = row.peak_memory_bytes <= cluster.node.gpu.memory_bytes;
  return row;
}

std::string to_table(const std::vector<PartitionRow>& rows, const Scenario& scenario,
                     const PartitionProblem& problem) {
  const Cluster& cluster = scenario.cluster;
  const Plan& plan = problem.plan();
  std::string text = fmt::format("{}: {} on {} x {} ({})\n", scenario.name, scenario.model.name,
                                 cluster.gpu_count(), cluster.node.gpu.name, cluster.node.name);
  text += fmt::format("{} ops, {} micro-batches of {} x {}, {}\n\n",
                      format_count(std::ssize(problem.graph().ops)), problem.microbatches(),
                      plan.microbatch_size, plan.sequence, to_string(plan.compute_dtype));
  text += fmt::format("  {:<21}{:>10}{:>10}{:>10}{:>11}{:>8}{:>8}{:>7}{:>7}{:>8}{:>10}\n", "", "ops in a",
                      "pieces on", "", "sent", "NVLink", "PCIe", "NVLink", "NVLink", "compute", "");
  text +=
      fmt::format("  {:<21}{:>10}{:>10}{:>10}{:>11}{:>8}{:>8}{:>7}{:>7}{:>8}{:>10}\n", "strategy", "piece",
                  "devices", "step time", "a step", "share", "share", "use", "busy", "balance", "memory");
  for (const PartitionRow& row : rows) text += line(row);
  text +=
      "\n  share: of the bytes sent, by the slowest kind of link on their way. use: bytes carried over\n"
      "  capacity x step time, of the NVLinks in use. busy: part of the step in which something is under\n"
      "  way there. balance: compute time of the mean device over the busiest one's.\n";
  if (std::ranges::any_of(rows, [](const PartitionRow& row) { return !row.fits; })) {
    text += fmt::format("  !: more than the GPU's {}.\n",
                        format_bytes(static_cast<double>(cluster.node.gpu.memory_bytes)));
  }
  return text;
}

std::string to_json(const std::vector<PartitionRow>& rows, const Scenario& scenario,
                    const PartitionProblem& problem) {
  Json list = Json::array();
  for (const PartitionRow& row : rows) list.push_back(row_json(row));
  const Json json = {
      {"scenario", scenario.name},         {"engine", scenario.engine},
      {"ops", problem.graph().ops.size()}, {"microbatches", problem.microbatches()},
      {"devices", problem.devices()},      {"gpu_memory_bytes", scenario.cluster.node.gpu.memory_bytes},
      {"partitions", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery

#include "simulator/fabric_weights.hpp"

#include <algorithm>
#include <numeric>

namespace orrery {

SteeredFlows::SteeredFlows(const Cluster& cluster, const FabricRoutes& fabric,
                           std::span<const FabricFlow> flows, const FabricLoadOptions& options)
    : fabric_(fabric), options_(options) {
  const auto links = static_cast<std::size_t>(fabric.link_count());
  queue_.assign(links, 0);
  capacity_.assign(links, 0);
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> sending;  // Flows by NIC.
  for (const FabricFlow& flow : flows) ++sending[{flow.from.node, flow.from.nic}];
  for (const FabricFlow& flow : flows) {
    const std::int32_t from = fabric.leaf(flow.from), to = fabric.leaf(flow.to);
    Part part;
    if (from != to) {
      const auto [at, fresh] = known.try_emplace({from, to}, static_cast<std::int32_t>(tables_.size()));
      if (fresh)
        tables_.push_back(
            {from, to, std::vector<double>(static_cast<std::size_t>(fabric.path_count(from, to)), 1)});
      part.table = at->second;
    }
    part.asked_bytes_per_s =
        cluster.node.nic_bytes_per_s / sending[{flow.from.node, flow.from.nic}] / options.queue_pairs;
    for (std::int32_t pair = 0; pair < options.queue_pairs; ++pair) {
      const std::uint64_t hash = flow_hash(flow.from, flow.to, pair, options.seed);
      part.point = static_cast<double>(hash >> 11) * 0x1.0p-53;
      choose(part);
      parts_.push_back(part);
    }
  }
}

bool SteeredFlows::adjust() {
  measure_queues();
  bool changed = false;
  for (Table& table : tables_) changed = change_weights(table) || changed;
  for (Part& part : parts_) choose(part);
  return changed;
}

void SteeredFlows::measure_queues() {
  std::ranges::fill(queue_, 0);
  for (const Part& part : parts_) {
    if (part.table < 0) continue;
    const Table& table = tables_[static_cast<std::size_t>(part.table)];
    path_.clear();
    fabric_.append_path(table.from, table.to, part.path, path_);
    for (const PathLink& link : path_) {
      queue_[static_cast<std::size_t>(link.link)] += part.asked_bytes_per_s;
      capacity_[static_cast<std::size_t>(link.link)] = link.bytes_per_s;
    }
  }
  for (std::size_t link = 0; link < queue_.size(); ++link)
    if (queue_[link] > 0) queue_[link] = std::clamp(queue_[link] / capacity_[link] - 1, 0.0, 1.0);
}

bool SteeredFlows::change_weights(Table& table) {
  const FeedbackRule& rule = options_.feedback;
  const std::vector<double> before = table.weights;
  for (std::size_t path = 0; path < table.weights.size(); ++path) {
    path_.clear();
    fabric_.append_path(table.from, table.to, static_cast<std::int64_t>(path), path_);
    double longest = 0;
    for (const PathLink& link : path_)
      longest = std::max(longest, queue_[static_cast<std::size_t>(link.link)]);
    if (longest > rule.high) table.weights[path] *= rule.lower;
    if (longest < rule.low) table.weights[path] *= rule.raise;
  }
  // Only ratios matter; the highest weight stays 1.
  const double highest = *std::ranges::max_element(table.weights);
  for (double& weight : table.weights) weight = std::max(weight / highest, rule.least_weight);
  return table.weights != before;
}

void SteeredFlows::choose(Part& part) const {
  if (part.table < 0) return;
  const std::vector<double>& weights = tables_[static_cast<std::size_t>(part.table)].weights;
  double left = part.point * std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t path = 0;
  while (path + 1 < weights.size() && left >= weights[path]) left -= weights[path++];
  part.path = static_cast<std::int64_t>(path);
}

}  // namespace orrery

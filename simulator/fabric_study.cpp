#include "simulator/fabric_study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace orrery {
namespace {

// Each takes some hundred bytes and a microsecond.
constexpr std::int64_t kMostFlows = std::int64_t{1} << 21;
// Rates differ by rounding where they don't differ.
constexpr double kSlower = 0.99;

struct Case {
  FabricRouting routing = FabricRouting::kAdaptive;
  std::int32_t queue_pairs = 1;
};

std::vector<Case> cases(const TrafficRequest& request) {
  using enum FabricRouting;
  std::vector<Case> all{{kAdaptive, 1}, {kEcmp, 1}};
  if (request.queue_pairs > 1) all.push_back({kEcmp, request.queue_pairs});
  all.push_back({kFeedback, request.queue_pairs});
  return all;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double idle(const std::vector<double>& utilisation) {
  if (utilisation.empty()) return 0;
  return static_cast<double>(std::ranges::count(utilisation, 0.0)) / static_cast<double>(utilisation.size());
}

// The seeds of one row after another.
class Study {
 public:
  Study(const Cluster& cluster, const TrafficRequest& request)
      : cluster_(cluster),
        request_(request),
        fabric_(make_fabric_routes(cluster, false)),
        jobs_(place_jobs(request.jobs, cluster.nodes / request.jobs, request.interleaved)) {}

  std::vector<FabricRow> rows() const {
    std::vector<FabricRow> rows;
    for (const TrafficPattern pattern : request_.patterns) {
      const std::int64_t flows = flow_count(pattern);
      const bool by_leaf_pairs =
          flows > kMostFlows && pattern == TrafficPattern::kAllToAll && jobs_.size() == 1;
      if (flows > kMostFlows && !by_leaf_pairs)
        fail(ErrorKind::kInfeasible, "{} of {} jobs has {} flows; expected at most {}: use fewer nodes",
             to_string(pattern), jobs_.size(), flows, kMostFlows);
      for (const Case& one : cases(request_)) {
        if (by_leaf_pairs && one.routing == FabricRouting::kFeedback) continue;  // It steers single flows.
        FabricRow row;
        row.pattern = pattern;
        row.routing = one.routing;
        row.queue_pairs = one.queue_pairs;
        row.by_leaf_pairs = by_leaf_pairs;
        row.flows = flows;
        by_leaf_pairs ? add_all_to_all(row) : add_seeds(row);
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }

 private:
  std::int64_t flow_count(TrafficPattern pattern) const {
    const auto nodes = static_cast<std::int64_t>(jobs_.front().size());
    const std::int64_t peers = pattern == TrafficPattern::kAllToAll ? nodes - 1 : 1;
    return static_cast<std::int64_t>(jobs_.size()) * nodes * peers * cluster_.node.nics;
  }
  // Flows of one NIC.
  double fan(TrafficPattern pattern) const {
    return pattern == TrafficPattern::kAllToAll ? static_cast<double>(jobs_.front().size()) - 1 : 1;
  }
  FabricLoadOptions options(const FabricRow& row, std::int32_t seed) const {
    FabricLoadOptions options;
    options.routing = row.routing;
    options.queue_pairs = row.queue_pairs;
    options.seed = cluster_.fabric.hash_seed + static_cast<std::uint64_t>(seed);
    return options;
  }
  // Adaptive routing hashes nothing, and only permutations are random themselves.
  std::int32_t seeds(const FabricRow& row) const {
    const bool random =
        row.routing != FabricRouting::kAdaptive || row.pattern == TrafficPattern::kPermutation;
    return random ? request_.seeds : 1;
  }

  void add_seeds(FabricRow& row) const {
    const std::int32_t count = seeds(row);
    const double share = 1.0 / count;
    row.settled = row.mean_slowdown = row.worst_slowdown = 0;
    for (std::int32_t seed = 0; seed < count; ++seed) {
      const FabricLoadOptions with = options(row, seed);
      std::vector<FabricFlow> flows;
      for (std::size_t job = 0; job < jobs_.size(); ++job) {
        const auto more =
            traffic(row.pattern, jobs_[job], cluster_.node.nics, with.seed, static_cast<std::int32_t>(job));
        flows.insert(flows.end(), more.begin(), more.end());
      }
      const FabricLoad load = load_fabric(cluster_, *fabric_, flows, with);
      row.slowest_bytes_per_s += share * fan(row.pattern) * load.bytes_per_s[load.slowest];
      row.mean_bytes_per_s += share * fan(row.pattern) * mean(load.bytes_per_s);
      row.idle_links += share * idle(load.utilisation);
      row.settled += share * load.settled;
      if (seed == 0) {
        const FabricFlow& slowest = flows[load.slowest];
        row.slowest_flow = fmt::format("node{}.nic{} → node{}.nic{}", slowest.from.node, slowest.from.nic,
                                       slowest.to.node, slowest.to.nic);
      }
      row.slowed += share * slowed(flows, load, with);
      std::vector<double> slowdowns{1};
      if (jobs_.size() > 1) slowdowns = job_slowdowns(cluster_, *fabric_, flows, with);
      row.mean_slowdown += share * mean(slowdowns);
      row.worst_slowdown = std::max(row.worst_slowdown, *std::ranges::max_element(slowdowns));
    }
  }

  double slowed(const std::vector<FabricFlow>& flows, const FabricLoad& load, FabricLoadOptions with) const {
    if (with.routing == FabricRouting::kAdaptive) return 0;
    with.routing = FabricRouting::kAdaptive;
    const FabricLoad ideal = load_fabric(cluster_, *fabric_, flows, with);
    std::size_t slower = 0;
    for (std::size_t f = 0; f < flows.size(); ++f)
      slower += load.bytes_per_s[f] < kSlower * ideal.bytes_per_s[f];
    return static_cast<double>(slower) / static_cast<double>(flows.size());
  }

  void add_all_to_all(FabricRow& row) const {
    const LeafPairLoad load = load_all_to_all(cluster_, *fabric_, jobs_.front(), options(row, 0));
    row.slowest_bytes_per_s = fan(row.pattern) * load.slowest();
    row.mean_bytes_per_s = fan(row.pattern) * load.mean();
    row.idle_links = idle(load.utilisation);
  }

  const Cluster& cluster_;
  const TrafficRequest& request_;
  std::unique_ptr<FabricRoutes> fabric_;
  std::vector<std::vector<std::int32_t>> jobs_;
};

}  // namespace

std::vector<FabricRow> study_fabric(const Cluster& cluster, const TrafficRequest& request) {
  if (cluster.nodes < 2 || cluster.node.nics < 1)
    fail(ErrorKind::kInput,
         "cluster {} has {} nodes with {} network cards each, so there is no fabric to look at", cluster.name,
         cluster.nodes, cluster.node.nics);
  if (cluster.nodes / request.jobs < 2)
    fail(ErrorKind::kInput, "{} jobs on {} nodes: each needs at least two", request.jobs, cluster.nodes);
  return Study(cluster, request).rows();
}

std::vector<DepthRow> study_depth(const Cluster& cluster, const TrafficRequest& request) {
  const Router router(cluster);
  const std::int32_t far = cluster.gpu_count() - cluster.node.gpus;
  const Path path = router.path(0, far);
  QueuePairs shape;
  shape.pairs = request.queue_pairs;
  shape.bytes_per_s = path.bytes_per_s();
  shape.round_trip_s = path.latency_s + router.path(far, 0).latency_s;
  shape.post_s = request.post_s;
  std::vector<DepthRow> rows;
  for (const std::int64_t bytes : request.messages) {
    shape.message_bytes = bytes;
    DepthRow row{bytes, least_depth(shape), {}};
    for (const std::int32_t depth : request.depths) {
      shape.depth = depth;
      row.rates.push_back({depth, connection_rate(shape)});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace orrery

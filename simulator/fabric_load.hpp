#pragma once
// What a fabric makes of a set of connections that all send at once: the rate of each, and how full each
// cable gets. Fluid and steady: rates are max-min fair.

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/fabric_traffic.hpp"
#include "topology/cluster.hpp"
#include "topology/fabric_routes.hpp"

namespace orrery {

// How a leaf switch steers: after each round a path whose longest queue is above `high` (a share of the
// buffer) has its weight multiplied by `lower`, one below `low` by `raise`. A connection keeps its hash and
// goes where the weights put it. A queue stands where more is asked of a cable than it carries: empty when no
// more is asked than that, full at twice as much.
struct FeedbackRule {
  double high = 0.75, low = 0.30;
  double lower = 0.3, raise = 1.2;
  // A path is never given up: then nobody would notice that it is free again.
  double least_weight = 1.0 / 1024;
  std::int32_t rounds = 128;   // At most. Where weights never come to rest, rates are the mean
  std::int32_t averaged = 32;  // of so many of the last rounds.
};

struct FabricLoadOptions {
  FabricRouting routing = FabricRouting::kAdaptive;
  std::uint64_t seed = 0;  // Of the switches' hash.
  std::int32_t queue_pairs =
      1;  // Per connection; each message is cut over all of them, each has its own path.
  FeedbackRule feedback;
};

struct FabricLoad {
  std::vector<double> bytes_per_s;  // By flow.
  std::vector<double> utilisation;  // By link of the fabric, 0 … 1.
  std::size_t slowest = 0;          // Flow.
  std::int32_t rounds = 0;          // Of feedback.
  bool settled = true;              // Whether its weights came to rest.
};

// REQUIRES: `fabric` was made for the cluster, cable by cable (not bundled).
// THROWS Error(kInput) when a flow's ends aren't joined.
FabricLoad load_fabric(const Cluster& cluster, const FabricRoutes& fabric, std::span<const FabricFlow> flows,
                       const FabricLoadOptions& options);

// An all-to-all (TrafficPattern::kAllToAll) over the nodes, without a flow per pair of NICs: all connections
// from one leaf switch to another count as one, whose parts progress alike. Adaptive or ECMP. Rates of a
// connection by pair of leaf switches, in the order of `pairs`.
struct LeafPairLoad {
  struct Pair {
    std::int32_t from_leaf = 0, to_leaf = 0;
    std::int64_t connections = 0;
  };
  std::vector<Pair> pairs;
  std::vector<double> bytes_per_s;
  std::vector<double> utilisation;
  double slowest() const;
  double mean() const;  // Over connections.
};
LeafPairLoad load_all_to_all(const Cluster& cluster, const FabricRoutes& fabric,
                             std::span<const std::int32_t> nodes, const FabricLoadOptions& options);

// What sharing the fabric costs each job: the rate of its slowest flow alone over that beside the others. A
// collective is as fast as its slowest flow.
std::vector<double> job_slowdowns(const Cluster& cluster, const FabricRoutes& fabric,
                                  std::span<const FabricFlow> flows, const FabricLoadOptions& options);

}  // namespace orrery

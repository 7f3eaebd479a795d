#pragma once
// Connections that leaf switches steer by the weights of paths, and how the weights follow the queues
// (FeedbackRule).

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "simulator/fabric_load.hpp"

namespace orrery {

class SteeredFlows {
 public:
  // All paths weigh the same at first. The arguments outlive it.
  SteeredFlows(const Cluster& cluster, const FabricRoutes& fabric, std::span<const FabricFlow> flows,
               const FabricLoadOptions& options);

  std::int64_t path(std::size_t flow, std::int32_t queue_pair) const {
    return parts_[flow * static_cast<std::size_t>(options_.queue_pairs) +
                  static_cast<std::size_t>(queue_pair)]
        .path;
  }
  // One round: queues of the present paths, new weights, new paths. False when no weight changed.
  bool adjust();

 private:
  struct Part {
    std::int32_t table = -1;  // −1: within one leaf switch.
    double point = 0;         // 0 … 1, its hash.
    double asked_bytes_per_s = 0;
    std::int64_t path = 0;
  };
  // The paths from one leaf switch to another.
  struct Table {
    std::int32_t from = 0, to = 0;
    std::vector<double> weights;
  };
  void measure_queues();
  bool change_weights(Table& table);
  void choose(Part& part) const;

  const FabricRoutes& fabric_;
  const FabricLoadOptions& options_;
  std::vector<Table> tables_;
  std::vector<Part> parts_;
  std::vector<double> queue_;     // By link, share of the buffer.
  std::vector<double> capacity_;  // By link.
  std::vector<PathLink> path_;
};

}  // namespace orrery

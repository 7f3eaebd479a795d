#pragma once
// The rings that somebody uses on a machine, edge by edge, beside the best ones: what each edge goes over,
// what it gives while the others move data too, and what an all-reduce takes either way.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/cluster.hpp"
#include "topology/import/topology_file.hpp"
#include "topology/ring_order.hpp"

namespace orrery {

struct RingReport {
  NodeType node;
  std::string order_source;      // Where the order comes from: "index order", a file, "--order".
  std::vector<RingOrder> given;  // Side by side.
  RingCost given_cost;
  // As many rings as given, the best order forwards and backwards in turn.
  std::vector<RingOrder> best;
  RingCost best_cost;
  bool best_proved = false;  // No single ring is faster.
};

// Rings over GPUs of one node. THROWS Error(kInput) when an order names a GPU twice or one that isn't there.
RingReport ring_report(const NodeType& node, std::vector<RingOrder> given, std::string order_source);

// The rings that a log or a graph file has over GPUs of one host, each different order once. Empty when it
// has none, or rings over several hosts.
std::vector<RingOrder> rings_of(const TopologyFile& file);

std::string to_table(const RingReport& report, std::int64_t bytes);
std::string to_json(const RingReport& report, std::int64_t bytes);

// A graph file (NCCL_GRAPH_FILE) that makes NCCL use the best rings.
std::string nccl_graph_file(const RingReport& report);

}  // namespace orrery

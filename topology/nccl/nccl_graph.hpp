#pragma once
// What NCCL's search lays out, in the terms of its graph files (NCCL_GRAPH_FILE) and logs. Bandwidths in
// GB/s.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::nccl {

// Best first, as NCCL numbers them.
enum class PathClass : std::uint8_t {
  kLoc,
  kNvl,
  kNvb,
  kC2c,
  kPix,
  kPxb,
  kP2c,
  kPxn,
  kPhb,
  kSys,
  kNet,
  kDis
};
std::string_view to_string(PathClass path);  // "PIX"
std::optional<PathClass> parse_path_class(std::string_view text);

enum class GraphKind : std::uint8_t {
  kRing = 0,
  kTree = 1,
  kCollNetChain = 2,
  kNvls = 3,
  kCollNetDirect = 4
};
enum class Pattern : std::uint8_t {
  kBalancedTree = 1,
  kSplitTree = 2,
  kTree = 3,
  kRing = 4,
  kNvls = 5,
  kCollNetDirect = 6
};

// GPUs in order, and the network ports through which it enters and leaves a node.
struct GraphChannel {
  std::vector<std::int64_t>
      gpus;  // Device numbers; the host's number in the top byte where hosts share NVLink.
  std::optional<std::int64_t> entry_nic, exit_nic;
  bool operator==(const GraphChannel&) const = default;
};

struct Graph {
  GraphKind kind = GraphKind::kRing;
  Pattern pattern = Pattern::kRing;
  std::int32_t cross_nic = 0;
  double node_gb_per_s = 0, network_gb_per_s = 0;  // Per channel.
  double network_latency_us = 0;
  PathClass node_path = PathClass::kLoc, network_path = PathClass::kLoc;  // The worst that was allowed.
  bool same_channels = true;
  std::vector<GraphChannel> channels;  // Empty: not found, or not looked for.
  bool operator==(const Graph&) const = default;
};

}  // namespace orrery::nccl

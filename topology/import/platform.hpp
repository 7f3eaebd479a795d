#pragma once
// SimGrid's platform files, as far as they describe clusters: hosts, links and routes by name, and the
// `cluster` element that stands for many of them.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/cluster.hpp"

namespace orrery {

enum class LinkSharing : std::uint8_t {
  kShared,       // Both directions share its bandwidth.
  kSplitDuplex,  // Each direction has it: two links of SimGrid's, UP and DOWN.
  kFatPipe,      // Each flow has all of it.
};
std::string_view to_string(LinkSharing sharing);  // "SPLITDUPLEX"

struct PlatformHost {
  std::string name;
  double flops_per_s = 0;
  std::int32_t cores = 1;
  bool operator==(const PlatformHost&) const = default;
};

struct PlatformLink {
  std::string name;
  double bytes_per_s = 0;
  double latency_s = 0;
  LinkSharing sharing = LinkSharing::kShared;
  bool operator==(const PlatformLink&) const = default;
};

// A link on a way; of a split one a direction.
struct PlatformHop {
  enum class Direction : std::uint8_t { kNone, kUp, kDown };
  std::string link;
  Direction direction = Direction::kNone;
  bool operator==(const PlatformHop&) const = default;
};

struct PlatformRoute {
  std::string from, to;
  std::vector<PlatformHop> hops;
  bool symmetrical = true;  // The way back is the same, reversed.
  bool operator==(const PlatformRoute&) const = default;
};

enum class ClusterTopology : std::uint8_t { kFlat, kFatTree, kTorus, kDragonfly };

struct PlatformCluster {
  std::string name;
  std::vector<std::string> hosts;  // prefix, number, suffix.
  double flops_per_s = 0;
  std::int32_t cores = 1;
  double bytes_per_s = 0, latency_s = 0;  // Of each host's link.
  LinkSharing sharing = LinkSharing::kSplitDuplex;
  double backbone_bytes_per_s = 0, backbone_latency_s = 0;  // 0: none.
  double loopback_bytes_per_s = 0, loopback_latency_s = 0;  // 0: none.
  ClusterTopology topology = ClusterTopology::kFlat;
  // Fat tree "2;4,4;1,2;1,2": levels; down-links, up-links and cables by level. Torus "3,2,2": sizes.
  // Dragonfly "3,4;3,2;3,1;2": groups, chassis, routers with their cables; nodes.
  std::vector<std::vector<std::int32_t>> parameters;
  bool operator==(const PlatformCluster&) const = default;
};

struct PlatformDescription {
  std::vector<PlatformHost> hosts;
  std::vector<PlatformLink> links;
  std::vector<PlatformRoute> routes;
  std::vector<PlatformCluster> clusters;
  bool operator==(const PlatformDescription&) const = default;
};

// THROWS Error(kInput) naming the line, for tags and attributes outside that subset, too: what is left out
// would change times silently.
PlatformDescription read_simgrid_platform(std::string_view text, std::string_view file);

std::string write_simgrid_platform(const PlatformDescription& platform);

// GPUs as hosts ("node1.gpu3"), each direction of each link instance as a link, all ways as routes. A way's
// latency is a link of its own that nobody shares, since a Path has it as a whole.
// THROWS Error(kInput) for more than 128 GPUs: routes grow with their square.
PlatformDescription make_platform(const Cluster& cluster);
std::string write_simgrid_platform(const Cluster& cluster);

}  // namespace orrery

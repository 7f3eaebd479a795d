#include <fmt/format.h>

#include <algorithm>

#include "scenarios/sections.hpp"

namespace orrery {
namespace {

// One switch and its cable: 130 ns port to port (NVIDIA QM8700 and QM9700 datasheets) and 30 m of fibre at
// 5 ns/m, rounded.
constexpr double kHopLatency = 300e-9;
constexpr std::int64_t kMaxPorts = 65'536;
constexpr std::int64_t kMaxQueuePairs = 1024;
constexpr std::int64_t kMaxSeeds = 1000;
constexpr std::int64_t kMostMessageBytes = std::int64_t{1} << 31;  // As InfiniBand's.
constexpr std::int64_t kMostDepth = 65'536;

void read_tiers(const Section& section, Fabric& fabric) {
  if (!section.has("tiers")) return;
  for (const YamlNode* item : section.items("tiers")) {
    const Section tier(*item, section.path("tiers"), "tier", section.faults());
    FabricTier read;
    if (tier.require("joins", "how many groups of the tier below make one of this tier, e.g. 8"))
      tier.integer("joins", read.joins, 1, kMaxNodes);
    tier.number("oversubscription", read.oversubscription, 1, 64);
    tier.integer("uplinks", read.uplinks, 1, kMaxPorts);
    fabric.tiers.push_back(read);
  }
}

void read_torus(const Section& section, Fabric& fabric) {
  if (!section.has("torus")) return;
  for (const YamlNode* item : section.items("torus")) {
    const auto size = item->kind == YamlNode::Kind::kScalar ? parse_integer(item->text) : std::nullopt;
    if (!size || *size < 1 || *size > kMaxNodes) {
      section.faults().add(*item, section.path("torus"),
                           "is " + describe(*item) + "; expected nodes along each dimension, e.g. [4, 4]");
      return;
    }
    fabric.torus.push_back(static_cast<std::int32_t>(*size));
  }
}

// A key that means nothing for the kind is a mistake.
void check_kind(const Section& section, const Fabric& fabric) {
  const bool tree = fabric.kind == FabricKind::kRailOptimised || fabric.kind == FabricKind::kFatTree ||
                    fabric.kind == FabricKind::kRailOnly;
  const bool dragonfly = fabric.kind == FabricKind::kDragonfly, torus = fabric.kind == FabricKind::kTorus;
  const auto only = [&](std::string_view key, bool fits, std::string_view kinds) {
    if (section.has(key) && !fits)
      section.fault(
          key, fmt::format("belongs to {}, not to {}; drop one of the two", kinds, to_string(fabric.kind)));
  };
  for (const char* key : {"uplinks", "tiers", "oversubscription"}) only(key, tree, "fat trees and rails");
  for (const char* key : {"switches_per_group", "global_links"}) only(key, dragonfly, "a dragonfly");
  only("torus", torus, "a torus");
  only("link", dragonfly || torus, "dragonflies and tori");
  if (torus) section.require("torus", "nodes along each dimension, e.g. [4, 4]");
}

}  // namespace

void read_fabric(const Section& cluster_section, Fabric& fabric) {
  Choices<FabricKind> kinds;
  for (const FabricKind kind : {FabricKind::kNone, FabricKind::kRailOptimised, FabricKind::kFatTree,
                                FabricKind::kRailOnly, FabricKind::kDragonfly, FabricKind::kTorus})
    kinds.emplace_back(to_string(kind), kind);
  fabric.hop_latency_s = kHopLatency;
  const YamlNode* node = cluster_section.node("fabric");
  if (node == nullptr) return;
  fabric.source = "scenario file";
  if (node->kind == YamlNode::Kind::kScalar) {
    cluster_section.choice("fabric", fabric.kind, kinds);
    return;
  }
  const Section section(*node, cluster_section.path("fabric"), "fabric", cluster_section.faults());
  section.choice("kind", fabric.kind, kinds);
  section.number("oversubscription", fabric.oversubscription, 1, 64);
  section.integer("nodes_per_leaf", fabric.nodes_per_leaf, 1, kMaxNodes);
  section.seconds("hop_latency", fabric.hop_latency_s, 1e-3);
  section.integer("uplinks", fabric.uplinks, 1, kMaxPorts);
  read_tiers(section, fabric);
  Choices<FabricRouting> routings;
  for (const FabricRouting routing :
       {FabricRouting::kAdaptive, FabricRouting::kEcmp, FabricRouting::kFeedback})
    routings.emplace_back(to_string(routing), routing);
  section.choice("routing", fabric.routing, routings);
  section.integer("hash_seed", fabric.hash_seed, 0, 2147483647);
  section.integer("switches_per_group", fabric.switches_per_group, 1, kMaxPorts);
  section.integer("global_links", fabric.global_links, 1, kMaxPorts);
  read_torus(section, fabric);
  section.bandwidth("link", fabric.link_bytes_per_s);
  check_kind(section, fabric);
}

void read_traffic(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("traffic");
  if (node == nullptr) return;
  const Section section(*node, "traffic", "traffic", file.faults());
  TrafficRequest& request = scenario.traffic;
  if (section.has("patterns")) {
    const std::vector<TrafficPattern> all = request.patterns;
    request.patterns.clear();
    for (const YamlNode* item : section.items("patterns")) {
      const auto found =
          std::ranges::find_if(all, [&](TrafficPattern pattern) { return item->text == to_string(pattern); });
      if (item->kind != YamlNode::Kind::kScalar || found == all.end()) {
        section.faults().add(*item, section.path("patterns"),
                             "is " + describe(*item) + "; expected ring, permutation or all-to-all");
      } else {
        request.patterns.push_back(*found);
      }
    }
    if (request.patterns.empty()) section.fault("patterns", "is empty; leave it out to compare all");
  }
  section.integer("jobs", request.jobs, 1, kMaxNodes);
  section.choice("placement", request.interleaved, Choices<bool>{{"packed", false}, {"interleaved", true}});
  section.integer("queue_pairs", request.queue_pairs, 1, kMaxQueuePairs);
  section.integer("seeds", request.seeds, 1, kMaxSeeds);
  section.seconds("post", request.post_s, 1e-3);
  section.sizes("messages", request.messages, 1, kMostMessageBytes);
  section.integers("depths", request.depths, 1, kMostDepth);
}

}  // namespace orrery

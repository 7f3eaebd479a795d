#include <fmt/format.h>

#include <algorithm>

#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxPiece = 1'000'000'000;

void read_strategies(const Section& section, PartitionRequest& request) {
  if (!section.has("strategies")) return;
  request.strategies.clear();
  for (const YamlNode* item : section.items("strategies")) {
    const auto all = all_partition_strategies();
    const auto found = std::ranges::find_if(
        all, [&](PartitionStrategy strategy) { return item->text == to_string(strategy); });
    if (item->kind != YamlNode::Kind::kScalar || found == all.end()) {
      section.faults().add(
          *item, section.path("strategies"),
          "is " + describe(*item) + "; expected per-layer, per-operator or nvlink-neighbourhood");
    } else if (std::ranges::find(request.strategies, *found) != request.strategies.end()) {
      section.faults().add(*item, section.path("strategies"), describe(*item) + " is listed twice");
    } else {
      request.strategies.push_back(*found);
    }
  }
  if (request.strategies.empty()) section.fault("strategies", "is empty; leave it out to compare all");
}

void read_pieces(const Section& section, PartitionRequest& request) {
  if (!section.has("pieces")) return;
  request.pieces.clear();
  for (const YamlNode* item : section.items("pieces")) {
    const Section piece(*item, section.path("pieces"), "piece", section.faults());
    PieceLimits limits;
    piece.integer("min", limits.min, 1, kMaxPiece);
    piece.integer("max", limits.max, 1, kMaxPiece);
    if (limits.max < limits.min) {
      piece.fault("max", fmt::format("is {}, less than min, {}", limits.max, limits.min));
    }
    request.pieces.push_back(limits);
  }
  if (request.pieces.empty()) section.fault("pieces", "is empty; leave it out for pieces of any size");
}

}  // namespace

void read_partition(const Section& file, Scenario& scenario) {
  const YamlNode* node = file.node("partition");
  if (node == nullptr) return;
  const Section section(*node, "partition", "partition", file.faults());
  read_strategies(section, scenario.partition);
  read_pieces(section, scenario.partition);
}

}  // namespace orrery

// From outermost boxes to innermost ones: METIS cuts the ranks of a box into parts for the boxes inside it.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <utility>

#include "planner/partition_pieces.hpp"
#include "planner/placement_search.hpp"

namespace orrery {
namespace {

// What is placed as one: a rank, or a group whose members have to stay near each other.
struct Unit {
  std::vector<RankId> ranks;
};

class Cutter {
 public:
  Cutter(const RankTraffic& traffic, const PlacementMachine& machine, const HopLimit& limit,
         std::int32_t seed)
      : seed_(seed),
        unit_of_(static_cast<std::size_t>(machine.devices()), -1),
        device_of_(unit_of_.size(), -1) {
    for (const auto& group : limit.groups) add_unit(group);
    for (std::size_t rank = 0; rank < unit_of_.size(); ++rank) {
      if (unit_of_[rank] < 0) add_unit({RankId(static_cast<std::int64_t>(rank))});
    }
    bytes_.resize(units_.size());
    for (const GroupTraffic& group : traffic.groups) add_group(group);
    for (const PairTraffic& pair : traffic.pairs) add_bytes(pair.from, pair.to, pair.bytes);
  }

  std::vector<std::int32_t> run(const DeviceBox& all) {
    std::vector<std::size_t> units(units_.size());
    for (std::size_t u = 0; u < units.size(); ++u) units[u] = u;
    assign(all, units);
    return std::move(device_of_);
  }

 private:
  void add_unit(const std::vector<RankId>& ranks) {
    for (const RankId rank : ranks) unit_of_[rank.index()] = static_cast<std::int32_t>(std::ssize(units_));
    units_.push_back({ranks});
  }

  void add_bytes(RankId a, RankId b, double bytes) {
    const std::int32_t from = unit_of_[a.index()], to = unit_of_[b.index()];
    if (from == to || bytes <= 0) return;
    bytes_[static_cast<std::size_t>(from)][to] += bytes;
    bytes_[static_cast<std::size_t>(to)][from] += bytes;
  }

  // A ring goes through each box of its members once, whoever they are: its n links are shared out among all
  // pairs. One over all ranks is the same everywhere.
  void add_group(const GroupTraffic& group) {
    const auto n = static_cast<double>(group.ranks.size());
    if (group.ranks.size() == unit_of_.size()) return;
    const double each = 2 * group.ring_bytes / (n - 1) + 2 * group.pair_bytes;
    for (std::size_t i = 0; i < group.ranks.size(); ++i) {
      for (std::size_t j = i + 1; j < group.ranks.size(); ++j)
        add_bytes(group.ranks[i], group.ranks[j], each);
    }
  }

  std::size_t size(const std::vector<std::size_t>& units) const {
    std::size_t sum = 0;
    for (const std::size_t u : units) sum += units_[u].ranks.size();
    return sum;
  }

  void assign(const DeviceBox& box, const std::vector<std::size_t>& units) {
    assert(size(units) == box.devices.size());
    std::vector<std::vector<std::size_t>> parts;
    if (!box.boxes.empty() && cut(box, units, parts)) {
      for (std::size_t i = 0; i < parts.size(); ++i) assign(box.boxes[i], parts[i]);
      return;
    }
    std::size_t next = 0;
    for (const std::size_t u : units) {
      for (const RankId rank : units_[u].ranks) device_of_[rank.index()] = box.devices[next++];
    }
  }

  // The units of each box inside; false when they don't fill the boxes exactly.
  bool cut(const DeviceBox& box, const std::vector<std::size_t>& units,
           std::vector<std::vector<std::size_t>>& parts) {
    PieceGraph graph;
    std::vector<std::int32_t> local(units_.size(), -1);
    for (std::size_t i = 0; i < units.size(); ++i) local[units[i]] = static_cast<std::int32_t>(i);
    for (const std::size_t u : units) {
      graph.size.push_back(static_cast<std::int32_t>(units_[u].ranks.size()));
      graph.cost_s.push_back(static_cast<double>(units_[u].ranks.size()));
      auto& traffic = graph.traffic.emplace_back();
      for (const auto& [other, bytes] : bytes_[u]) {
        const std::int32_t neighbour = local[static_cast<std::size_t>(other)];
        if (neighbour >= 0) traffic[neighbour] = std::llround(bytes);
      }
    }
    const auto count = static_cast<std::int32_t>(std::ssize(box.boxes));
    if (std::ssize(units) < count) return false;
    std::vector<std::int32_t> room;
    for (const DeviceBox& inner : box.boxes)
      room.push_back(static_cast<std::int32_t>(std::ssize(inner.devices)));
    const bool silent =
        std::ranges::all_of(graph.traffic, [](const auto& traffic) { return traffic.empty(); });
    std::vector<std::int32_t> part_of =
        silent ? std::vector<std::int32_t>(units.size(), 0) : cut_graph(graph, count, seed_);
    if (!fill(graph, room, part_of)) return false;
    parts.assign(box.boxes.size(), {});
    for (std::size_t i = 0; i < units.size(); ++i)
      parts[static_cast<std::size_t>(part_of[i])].push_back(units[i]);
    return true;
  }

  // Moves units from parts that are too large to ones that are too small, those that lose least first.
  // `room`: of each part; what is left of it at the end is nothing, or units don't fit.
  static bool fill(const PieceGraph& graph, std::vector<std::int32_t>& room,
                   std::vector<std::int32_t>& part_of) {
    for (std::size_t v = 0; v < part_of.size(); ++v)
      room[static_cast<std::size_t>(part_of[v])] -= graph.size[v];
    while (std::ranges::any_of(room, [](std::int32_t left) { return left < 0; })) {
      std::size_t best = part_of.size(), best_to = 0;
      std::int64_t most = 0;
      for (std::size_t v = 0; v < part_of.size(); ++v) {
        const auto from = static_cast<std::size_t>(part_of[v]);
        if (room[from] >= 0) continue;
        std::vector<std::int64_t> bytes(room.size(), 0);
        for (const auto& [other, between] : graph.traffic[v])
          bytes[static_cast<std::size_t>(part_of[static_cast<std::size_t>(other)])] += between;
        for (std::size_t to = 0; to < room.size(); ++to) {
          if (room[to] < graph.size[v] || (best < part_of.size() && bytes[to] - bytes[from] <= most))
            continue;
          best = v, best_to = to, most = bytes[to] - bytes[from];
        }
      }
      if (best == part_of.size()) return false;
      room[static_cast<std::size_t>(part_of[best])] += graph.size[best];
      room[best_to] -= graph.size[best];
      part_of[best] = static_cast<std::int32_t>(best_to);
    }
    return std::ranges::all_of(room, [](std::int32_t left) { return left == 0; });
  }

  const std::int32_t seed_;
  std::vector<Unit> units_;
  std::vector<std::int32_t> unit_of_;                  // By rank.
  std::vector<std::map<std::int32_t, double>> bytes_;  // By unit: both ways, to each other one.
  std::vector<std::int32_t> device_of_;
};

}  // namespace

std::vector<std::int32_t> cut_along_boxes(const RankTraffic& traffic, const PlacementMachine& machine,
                                          const HopLimit& limit, std::int32_t seed) {
  return Cutter(traffic, machine, limit, seed).run(machine.boxes());
}

}  // namespace orrery

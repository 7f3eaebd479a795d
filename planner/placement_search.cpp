#include "planner/placement_search.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

#include "planner/placement_cost.hpp"

namespace orrery {
namespace {

// Sums in another order differ in the last digits; what saves less than this saves nothing.
constexpr double kSame = 1e-9;
// Each sweep tries every exchange once; a few are enough, and this ends them for sure.
constexpr int kMaxSweeps = 50;

}  // namespace

PlacementSearch::PlacementSearch(const RankTraffic& traffic, const PlacementMachine& machine,
                                 const HopLimit& limit)
    : machine_(machine),
      limit_(limit),
      seconds_(machine.link_seconds_per_byte()),
      flows_of_(static_cast<std::size_t>(machine.devices())),
      limited_in_(static_cast<std::size_t>(machine.devices()), -1) {
  for (std::size_t g = 0; g < limit.groups.size(); ++g) {
    for (const RankId rank : limit.groups[g]) limited_in_[rank.index()] = static_cast<std::int32_t>(g);
  }
  std::map<std::vector<RankId>, GroupTraffic> groups;
  for (const GroupTraffic& group : traffic.groups) {
    // A ring over all devices goes the same way whoever is where.
    if (std::ssize(group.ranks) == machine.devices()) continue;
    GroupTraffic& sum = groups.try_emplace(group.ranks, GroupTraffic{group.axis, group.ranks}).first->second;
    sum.ring_bytes += group.ring_bytes;
    sum.pair_bytes += group.pair_bytes;
  }
  std::map<std::pair<RankId, RankId>, double> pairs;
  for (const PairTraffic& pair : traffic.pairs) pairs[{pair.from, pair.to}] += pair.bytes;
  for (auto& [ranks, group] : groups) add({std::move(group)});
  for (const auto& [ends, bytes] : pairs) {
    Flows flows;
    flows.group.ranks = {ends.first, ends.second};
    flows.message_bytes = bytes;
    add(std::move(flows));
  }
}

void PlacementSearch::add(Flows flows) {
  for (const RankId rank : flows.group.ranks) {
    flows_of_[rank.index()].push_back(static_cast<std::int32_t>(std::ssize(flows_)));
  }
  flows_.push_back(std::move(flows));
}

double PlacementSearch::cost(const Flows& flows) const {
  const auto seconds = [&](std::int32_t from, std::int32_t to) {
    return seconds_[static_cast<std::size_t>(from) * static_cast<std::size_t>(machine_.devices()) +
                    static_cast<std::size_t>(to)];
  };
  const std::vector<RankId>& ranks = flows.group.ranks;
  if (flows.message_bytes > 0) {
    return flows.message_bytes * seconds(device_of_[ranks[0].index()], device_of_[ranks[1].index()]);
  }
  double sum = 0;
  for_each_flow(flows.group, device_of_, machine_.cluster().node.gpus,
                [&](const Flow& flow) { sum += flow.bytes * seconds(flow.from, flow.to); });
  return sum;
}

void PlacementSearch::start_at(std::vector<std::int32_t> device_of) {
  device_of_ = std::move(device_of);
  cost_of_.clear();
  for (const Flows& flows : flows_) cost_of_.push_back(cost(flows));
}

double PlacementSearch::cost() const { return std::accumulate(cost_of_.begin(), cost_of_.end(), 0.0); }

// Flows with some of the moved ranks but not both of an exchanged pair: the others lie on the same devices as
// before.
std::vector<std::int32_t> PlacementSearch::touched(const std::vector<Move>& moves) const {
  std::vector<std::int32_t> all;
  if (moves.size() == 2) {
    const auto& a = flows_of_[moves[0].rank.index()];
    const auto& b = flows_of_[moves[1].rank.index()];
    std::ranges::set_symmetric_difference(a, b, std::back_inserter(all));
    for (const std::int32_t i : a) {  // A message between the two turns round.
      if (flows_[static_cast<std::size_t>(i)].message_bytes > 0 && std::ranges::binary_search(b, i))
        all.push_back(i);
    }
    return all;
  }
  for (const Move& move : moves) {
    const auto& of = flows_of_[move.rank.index()];
    all.insert(all.end(), of.begin(), of.end());
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

bool PlacementSearch::keeps_limit(const std::vector<Move>& moves) const {
  for (const Move& move : moves) {
    const std::int32_t group = limited_in_[move.rank.index()];
    if (group < 0) continue;
    for (const RankId other : limit_.groups[static_cast<std::size_t>(group)]) {
      const std::int32_t here = device_of_[move.rank.index()], there = device_of_[other.index()];
      if (here != there && !machine_.within_hops(here, there, limit_.hops)) return false;
    }
  }
  return true;
}

// Does it when it saves something.
bool PlacementSearch::improves(const std::vector<Move>& moves) {
  std::vector<std::int32_t> before;
  for (const Move& move : moves) before.push_back(device_of_[move.rank.index()]);
  for (const Move& move : moves) device_of_[move.rank.index()] = move.device;
  const std::vector<std::int32_t> changed = touched(moves);
  std::vector<double> costs;
  double old_cost = 0, new_cost = 0;
  if (keeps_limit(moves)) {
    for (const std::int32_t i : changed) {
      costs.push_back(cost(flows_[static_cast<std::size_t>(i)]));
      new_cost += costs.back();
      old_cost += cost_of_[static_cast<std::size_t>(i)];
    }
    if (new_cost < old_cost * (1 - kSame)) {
      for (std::size_t i = 0; i < changed.size(); ++i)
        cost_of_[static_cast<std::size_t>(changed[i])] = costs[i];
      return true;
    }
  }
  for (std::size_t i = 0; i < moves.size(); ++i) device_of_[moves[i].rank.index()] = before[i];
  return false;
}

bool PlacementSearch::exchange_ranks() {
  bool improved = false;
  const auto ranks = static_cast<std::int32_t>(std::ssize(device_of_));
  for (std::int32_t a = 0; a < ranks; ++a) {
    for (std::int32_t b = a + 1; b < ranks; ++b) {
      const RankId one(a), other(b);
      improved |= improves({{one, device_of_[other.index()]}, {other, device_of_[one.index()]}});
    }
  }
  return improved;
}

bool PlacementSearch::exchange_groups() {
  bool improved = false;
  for (std::size_t a = 0; a < limit_.groups.size(); ++a) {
    for (std::size_t b = a + 1; b < limit_.groups.size(); ++b) {
      const auto &one = limit_.groups[a], &other = limit_.groups[b];
      if (one.size() != other.size()) continue;
      std::vector<Move> moves;
      for (std::size_t i = 0; i < one.size(); ++i) {
        moves.push_back({one[i], device_of_[other[i].index()]});
        moves.push_back({other[i], device_of_[one[i].index()]});
      }
      improved |= improves(moves);
    }
  }
  return improved;
}

void PlacementSearch::refine() {
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    const bool groups = exchange_groups();
    const bool ranks = exchange_ranks();
    if (!groups && !ranks) return;
  }
}

bool PlacementSearch::try_all() {
  std::vector<std::int32_t> order(static_cast<std::size_t>(machine_.devices()));
  assert(order.size() <= 8);
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::int32_t> best;
  double least = std::numeric_limits<double>::infinity();
  do {
    if (!hop_fault(limit_, machine_, order).empty()) continue;
    start_at(order);
    if (best.empty() || cost() < least * (1 - kSame)) best = order, least = cost();
  } while (std::ranges::next_permutation(order).found);
  if (best.empty()) return false;
  start_at(std::move(best));
  return true;
}

}  // namespace orrery

// The best order of a ring: exact in what its edges cost alone, then improved for what they share.

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <limits>
#include <numeric>

#include "topology/ring_order.hpp"

namespace orrery {
namespace {

constexpr std::size_t kExact = 16;  // 2^15 sets of 15 ends each.
constexpr double kNever = std::numeric_limits<double>::infinity();

// Costs of the edges between the i-th and the j-th GPU of a list.
struct EdgeCosts {
  std::size_t n = 0;
  std::vector<double> rate;       // Alone.
  std::vector<double> occupancy;  // Seconds per byte, over all links passed.

  EdgeCosts(const NodeType& node, const NodeRoutes& routes, std::span<const std::int32_t> gpus)
      : n(gpus.size()), rate(n * n, kNever), occupancy(n * n, 0) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        for (const Arc arc : routes.between[static_cast<std::size_t>(gpus[i] * node.gpus + gpus[j])].arcs) {
          const double link = node.links[static_cast<std::size_t>(arc / 2)].bytes_per_s;
          rate[i * n + j] = std::min(rate[i * n + j], link);
          occupancy[i * n + j] += 1 / link;
        }
  }
  bool at_least(std::size_t i, std::size_t j, double least) const { return rate[i * n + j] >= least; }
};

// Distinct rates of edges, fastest first.
std::vector<double> thresholds(const EdgeCosts& costs) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < costs.n; ++i)
    for (std::size_t j = 0; j < costs.n; ++j)
      if (i != j) rates.push_back(costs.rate[i * costs.n + j]);
  std::ranges::sort(rates, std::greater{});
  const auto same = std::ranges::unique(rates);
  rates.erase(same.begin(), same.end());
  return rates;
}

// Held and Karp: least occupancy of a way from GPU 0 through a set of the others to one of them, over edges
// of at least the given rate. Empty when no ring has only such edges.
std::vector<std::size_t> shortest_ring(const EdgeCosts& costs, double least_rate) {
  const std::size_t others = costs.n - 1, sets = std::size_t{1} << others;
  std::vector<double> best(sets * others, kNever);
  std::vector<std::uint8_t> before(sets * others, 0);
  for (std::size_t j = 0; j < others; ++j)
    if (costs.at_least(0, j + 1, least_rate))
      best[(std::size_t{1} << j) * others + j] = costs.occupancy[j + 1];
  for (std::size_t set = 1; set < sets; ++set)
    for (std::size_t rest = set; rest != 0; rest &= rest - 1) {
      const auto j = static_cast<std::size_t>(std::countr_zero(rest));
      const double so_far = best[set * others + j];
      if (so_far == kNever) continue;
      for (std::size_t open = ~set & (sets - 1); open != 0; open &= open - 1) {
        const auto k = static_cast<std::size_t>(std::countr_zero(open));
        if (!costs.at_least(j + 1, k + 1, least_rate)) continue;
        const std::size_t at = (set | std::size_t{1} << k) * others + k;
        const double length = so_far + costs.occupancy[(j + 1) * costs.n + k + 1];
        if (length >= best[at]) continue;
        best[at] = length;
        before[at] = static_cast<std::uint8_t>(j);
      }
    }
  std::size_t last = others;
  double least = kNever;
  for (std::size_t j = 0; j < others; ++j) {
    if (!costs.at_least(j + 1, 0, least_rate)) continue;
    const double length = best[(sets - 1) * others + j] + costs.occupancy[(j + 1) * costs.n];
    if (length < least) {
      least = length;
      last = j;
    }
  }
  std::vector<std::size_t> ring;
  if (last == others) return ring;
  for (std::size_t set = sets - 1; set != 0;) {
    ring.push_back(last + 1);
    const std::size_t previous = before[set * others + last];
    set &= ~(std::size_t{1} << last);
    last = previous;
  }
  ring.push_back(0);
  std::ranges::reverse(ring);
  return ring;
}

// The fastest next edge, of equal ones that with the least occupancy.
std::vector<std::size_t> greedy_ring(const EdgeCosts& costs) {
  std::vector<std::size_t> ring{0};
  std::vector<char> used(costs.n, 0);
  used[0] = 1;
  while (ring.size() < costs.n) {
    std::size_t next = costs.n;
    for (std::size_t j = 1; j < costs.n; ++j) {
      if (used[j]) continue;
      const std::size_t at = ring.back() * costs.n + j, other = ring.back() * costs.n + next;
      if (next == costs.n || costs.rate[at] > costs.rate[other] ||
          (costs.rate[at] == costs.rate[other] && costs.occupancy[at] < costs.occupancy[other]))
        next = j;
    }
    used[next] = 1;
    ring.push_back(next);
  }
  return ring;
}

// With everything shared: faster, or as fast over fewer links.
struct Merit {
  double bytes_per_s = 0, mean_links = 0;
  bool operator>(const Merit& other) const {
    if (bytes_per_s != other.bytes_per_s) return bytes_per_s > other.bytes_per_s;
    return mean_links < other.mean_links;
  }
};

// Reverses and moves stretches while that helps. The first GPU stays.
void improve(const NodeType& node, const NodeRoutes& routes, RingOrder& ring) {
  const auto merit = [&](const RingOrder& order) {
    const RingCost cost = ring_cost(node, routes, {&order, 1});
    return Merit{cost.bytes_per_s, cost.mean_links};
  };
  Merit best = merit(ring);
  const std::size_t n = ring.size();
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 1; i + 1 < n; ++i)
      for (std::size_t j = i + 2; j <= n; ++j)
        for (const bool reverse : {true, false}) {
          RingOrder other = ring;
          const auto begin = other.begin() + static_cast<std::ptrdiff_t>(i);
          const auto end = other.begin() + static_cast<std::ptrdiff_t>(j);
          if (reverse)
            std::reverse(begin, end);
          else
            std::rotate(begin, begin + 1, end);
          const Merit its = merit(other);
          if (!(its > best)) continue;
          best = its;
          ring = std::move(other);
          better = true;
        }
  }
}

}  // namespace

BestRing best_ring(const NodeType& node, const NodeRoutes& routes, std::span<const std::int32_t> gpus) {
  assert(gpus.size() > 1);
  std::vector<std::int32_t> list(gpus.begin(), gpus.end());
  std::ranges::sort(list);
  const EdgeCosts costs(node, routes, list);
  std::vector<std::size_t> found;
  double bound = kNever;
  if (list.size() <= kExact) {
    for (const double least : thresholds(costs)) {
      found = shortest_ring(costs, least);
      bound = least;
      if (!found.empty()) break;
    }
  } else {
    found = greedy_ring(costs);
  }
  BestRing best;
  for (const std::size_t i : found) best.order.push_back(list[i]);
  improve(node, routes, best.order);
  best.bytes_per_s = ring_cost(node, routes, {&best.order, 1}).bytes_per_s;
  best.proved = best.bytes_per_s >= bound;
  return best;
}

}  // namespace orrery

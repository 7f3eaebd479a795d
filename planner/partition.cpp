#include "planner/partition.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "planner/partition_mapping.hpp"
#include "planner/partition_order.hpp"
#include "planner/partition_pieces.hpp"
#include "planner/partition_problem.hpp"

namespace orrery {
namespace {

// METIS' cut depends on the seed; so many are timed.
constexpr std::int32_t kSeeds = 12;

// Ends of `parts` intervals of `cost`: the largest sum as small as possible, and among those divisions the
// one with the least sum of squares.
std::vector<std::size_t> divide(const std::vector<double>& cost, std::size_t parts) {
  const std::size_t count = cost.size();
  std::vector<double> before(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) before[i + 1] = before[i] + cost[i];
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<std::size_t>> start;  // By parts so far and end: where the last part starts.
  const auto solve = [&](double bound, bool squares) {
    std::vector<double> least(count + 1, kNever);
    least[0] = 0;
    start.assign(parts + 1, std::vector<std::size_t>(count + 1, 0));
    for (std::size_t p = 1; p <= parts; ++p) {
      std::vector<double> next(count + 1, kNever);
      for (std::size_t end = p; end <= count; ++end) {
        for (std::size_t from = p - 1; from < end; ++from) {
          const double sum = before[end] - before[from];
          if (sum > bound) continue;
          const double total = squares ? least[from] + sum * sum : std::max(least[from], sum);
          if (total < next[end]) next[end] = total, start[p][end] = from;
        }
      }
      least = std::move(next);
    }
    return least[count];
  };
  solve(solve(kNever, false), true);
  std::vector<std::size_t> ends(parts, count);
  for (std::size_t p = parts; p > 1; --p) ends[p - 2] = start[p][ends[p - 1]];
  return ends;
}

// One piece for each device in use; `device_of_group` numbers them from 0.
Partition one_piece_each(const PartitionProblem& problem, const std::vector<std::int32_t>& device_of_group) {
  Partition partition;
  for (std::size_t o = 0; o < problem.graph().ops.size(); ++o) {
    const std::int32_t group = problem.group_of(OpId(static_cast<std::int64_t>(o)));
    partition.piece_of.push_back(device_of_group[static_cast<std::size_t>(group)]);
  }
  const std::int32_t pieces = std::ranges::max(device_of_group) + 1;
  for (std::int32_t p = 0; p < pieces; ++p) partition.device_of.push_back(p);
  return partition;
}

Partition per_layer(const PartitionProblem& problem) {
  const PieceGraph& groups = problem.groups();
  std::vector<double> cost_s(static_cast<std::size_t>(problem.graph().block_count()), 0);
  for (std::int32_t g = 0; g < groups.vertices(); ++g) {
    cost_s[static_cast<std::size_t>(problem.block_of(g))] += groups.cost_s[static_cast<std::size_t>(g)];
  }
  // A tied head is where its table is; its block may be empty.
  while (cost_s.size() > 1 && cost_s.back() == 0) cost_s.pop_back();
  const std::size_t parts = std::min(cost_s.size(), static_cast<std::size_t>(problem.devices()));
  const std::vector<std::size_t> ends = divide(cost_s, parts);
  std::vector<std::int32_t> device_of;
  for (std::int32_t g = 0; g < groups.vertices(); ++g) {
    const auto block = static_cast<std::size_t>(problem.block_of(g));
    device_of.push_back(
        static_cast<std::int32_t>(std::upper_bound(ends.begin(), ends.end(), block) - ends.begin()));
  }
  return one_piece_each(problem, device_of);
}

Partition per_operator(const PartitionProblem& problem) {
  const std::vector<double>& cost_s = problem.groups().cost_s;
  std::vector<double> load_s(static_cast<std::size_t>(problem.devices()), 0);
  std::vector<std::int32_t> device_of;
  for (const double cost : cost_s) {
    const auto least = std::ranges::min_element(load_s);
    *least += cost;
    device_of.push_back(static_cast<std::int32_t>(least - load_s.begin()));
  }
  return one_piece_each(problem, device_of);
}

// Pieces on devices: as many parts as devices at most, each of pieces that talk to each other.
std::vector<std::int32_t> map_pieces(const PartitionProblem& problem,
                                     const std::vector<std::int32_t>& piece_of, std::int32_t pieces,
                                     std::int32_t seed) {
  const PieceGraph graph = quotient(problem.groups(), piece_of, pieces);
  std::vector<std::int32_t> part_of(static_cast<std::size_t>(pieces));
  for (std::int32_t p = 0; p < pieces; ++p) part_of[static_cast<std::size_t>(p)] = p;
  if (pieces > problem.devices()) part_of = cut_graph(graph, problem.devices(), seed);
  const std::int32_t parts = std::min(pieces, problem.devices());
  const std::vector<std::int32_t> device_of =
      map_parts(quotient(graph, part_of, parts), seconds_per_byte(problem.router()), problem.devices());
  std::vector<std::int32_t> of_piece;
  for (const std::int32_t part : part_of) of_piece.push_back(device_of[static_cast<std::size_t>(part)]);
  return of_piece;
}

Partition neighbourhood(const PartitionProblem& problem, const PieceLimits& limits) {
  const std::int32_t pieces = piece_count(problem.groups(), limits, problem.devices());
  // Enough micro-batches to fill the devices and to run on for as long.
  const std::int32_t microbatches = std::min(problem.microbatches(), 2 * problem.devices());
  std::optional<Partition> best;
  SimTime best_time;
  std::int32_t candidates = 0;
  for (std::int32_t seed = 0; seed < (pieces > 1 ? kSeeds : 1); ++seed) {
    const auto cut = cut_pieces(problem.groups(), pieces, limits, seed);
    if (!cut) continue;
    ++candidates;
    Partition partition;
    for (std::size_t o = 0; o < problem.graph().ops.size(); ++o) {
      const std::int32_t group = problem.group_of(OpId(static_cast<std::int64_t>(o)));
      partition.piece_of.push_back((*cut)[static_cast<std::size_t>(group)]);
    }
    partition.device_of = map_pieces(problem, *cut, pieces, seed);
    const SimTime time = order_partition(problem, partition, microbatches).makespan;
    if (best && time >= best_time) continue;
    best = std::move(partition);
    best_time = time;
  }
  if (!best) {
    fail(
        ErrorKind::kInfeasible,
        "pieces of {} to {} ops: METIS' {} pieces couldn't be brought within these limits by moving ops with "
        "their backward one by one; give the limits more room",
        limits.min, limits.max, pieces);
  }
  best->candidates = candidates;
  return *best;
}

}  // namespace

std::string_view to_string(PartitionStrategy strategy) {
  switch (strategy) {
    case PartitionStrategy::kPerLayer: return "per-layer";
    case PartitionStrategy::kPerOperator: return "per-operator";
    case PartitionStrategy::kNvLinkNeighbourhood: return "nvlink-neighbourhood";
  }
  return "";
}

std::vector<PartitionStrategy> all_partition_strategies() {
  return {PartitionStrategy::kPerLayer, PartitionStrategy::kPerOperator,
          PartitionStrategy::kNvLinkNeighbourhood};
}

Partition make_partition(const PartitionProblem& problem, PartitionStrategy strategy,
                         const PieceLimits& limits) {
  switch (strategy) {
    case PartitionStrategy::kPerLayer: return per_layer(problem);
    case PartitionStrategy::kPerOperator: return per_operator(problem);
    case PartitionStrategy::kNvLinkNeighbourhood: break;
  }
  return neighbourhood(problem, limits);
}

std::vector<std::int32_t> piece_sizes(const Partition& partition) {
  std::vector<std::int32_t> sizes(partition.device_of.size(), 0);
  for (const std::int32_t piece : partition.piece_of) ++sizes[static_cast<std::size_t>(piece)];
  return sizes;
}

}  // namespace orrery

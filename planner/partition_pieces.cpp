#include "planner/partition_pieces.hpp"

#include <metis.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "base/error.hpp"

namespace orrery {
namespace {

// METIS adds weights up in 32 bits: sums are scaled to these.
constexpr double kWholeCost = 1e6, kWholeTraffic = 1e9;
// How much dearer than the mean a part may be: METIS' own default, and more, where fewer bytes cross.
constexpr std::array<real_t, 3> kImbalances = {1.03F, 1.1F, 1.2F};

idx_t scaled(double value, double whole, double scale) {
  return whole > 0 ? std::max<idx_t>(1, static_cast<idx_t>(std::lround(value / whole * scale))) : 1;
}

bool connected(const PieceGraph& graph) {
  std::vector<bool> seen(graph.size.size(), false);
  std::vector<std::size_t> open = {0};
  seen[0] = true;
  std::size_t reached = 0;
  while (!open.empty()) {
    const std::size_t vertex = open.back();
    open.pop_back();
    ++reached;
    for (const auto& [other, bytes] : graph.traffic[vertex]) {
      const auto next = static_cast<std::size_t>(other);
      if (!seen[next]) open.push_back(next);
      seen[next] = true;
    }
  }
  return reached == seen.size();
}

// Moves single vertices from larger pieces to smaller ones until all sizes are within the limits. Each move
// lessens the sum of the squared sizes, so it ends.
class Repair {
 public:
  Repair(const PieceGraph& graph, std::int32_t pieces, const PieceLimits& limits,
         std::vector<std::int32_t>& piece_of)
      : graph_(graph), limits_(limits), piece_of_(piece_of), size_(static_cast<std::size_t>(pieces)) {
    for (std::size_t v = 0; v < piece_of.size(); ++v) size_[piece(v)] += graph.size[v];
  }

  // Whether it came to an end with all sizes within the limits.
  bool run() {
    while (true) {
      const auto [least, most] = std::minmax_element(size_.begin(), size_.end());
      if (*least >= limits_.min && *most <= limits_.max) return true;
      const bool takes = *least < limits_.min;
      const Move move = best_move(static_cast<std::size_t>((takes ? least : most) - size_.begin()), takes);
      if (move.vertex == kNone) return false;
      size_[piece(move.vertex)] -= graph_.size[move.vertex];
      size_[move.to] += graph_.size[move.vertex];
      piece_of_[move.vertex] = static_cast<std::int32_t>(move.to);
    }
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Move {
    std::size_t vertex = kNone, to = 0;
    std::int64_t saved = 0;       // Bytes that are cut less.
    std::int32_t difference = 0;  // In size, of the two pieces.
  };

  std::size_t piece(std::size_t vertex) const { return static_cast<std::size_t>(piece_of_[vertex]); }

  // Bytes between a vertex and a piece.
  std::int64_t bytes_to(std::size_t vertex, std::size_t of) const {
    std::int64_t sum = 0;
    for (const auto& [other, bytes] : graph_.traffic[vertex]) {
      if (piece(static_cast<std::size_t>(other)) == of) sum += bytes;
    }
    return sum;
  }

  // Into the piece, or out of it: the move that saves most bytes, of equal ones that between the most
  // different pieces, then the first.
  Move best_move(std::size_t of, bool takes) const {
    Move best;
    for (std::size_t v = 0; v < piece_of_.size(); ++v) {
      if ((piece(v) == of) == takes) continue;
      for (std::size_t to = takes ? of : 0; to < (takes ? of + 1 : size_.size()); ++to) {
        const std::int32_t difference = size_[piece(v)] - size_[to];
        if (difference <= graph_.size[v]) continue;
        const Move move{v, to, bytes_to(v, to) - bytes_to(v, piece(v)), difference};
        if (best.vertex == kNone ||
            std::pair(move.saved, move.difference) > std::pair(best.saved, best.difference)) {
          best = move;
        }
      }
    }
    return best;
  }

  const PieceGraph& graph_;
  const PieceLimits& limits_;
  std::vector<std::int32_t>& piece_of_;
  std::vector<std::int32_t> size_;  // By piece.
};

}  // namespace

std::vector<std::int32_t> cut_graph(const PieceGraph& graph, std::int32_t parts, std::int32_t seed) {
  std::vector<std::int32_t> part_of(static_cast<std::size_t>(graph.vertices()), 0);
  if (parts == 1) return part_of;
  const double whole_cost = graph.total_cost_s();
  double whole_traffic = 0;
  for (const auto& neighbours : graph.traffic) {
    for (const auto& [other, bytes] : neighbours) whole_traffic += static_cast<double>(bytes);
  }
  std::vector<idx_t> begin = {0}, neighbour, edge_weight, vertex_weight;
  for (std::size_t v = 0; v < part_of.size(); ++v) {
    vertex_weight.push_back(scaled(graph.cost_s[v], whole_cost, kWholeCost));
    for (const auto& [other, bytes] : graph.traffic[v]) {
      neighbour.push_back(other);
      edge_weight.push_back(scaled(static_cast<double>(bytes), whole_traffic, kWholeTraffic));
    }
    begin.push_back(static_cast<idx_t>(std::ssize(neighbour)));
  }
  std::array<idx_t, METIS_NOPTIONS> options{};
  METIS_SetDefaultOptions(options.data());
  options[METIS_OPTION_SEED] = seed;
  options[METIS_OPTION_NUMBERING] = 0;
  // A device that does two stretches of the model waits twice as often. METIS aborts where there is no such
  // cut.
  options[METIS_OPTION_CONTIG] = connected(graph) ? 1 : 0;
  idx_t vertices = graph.vertices(), constraints = 1, wanted = parts, cut = 0;
  real_t imbalance = kImbalances[static_cast<std::size_t>(seed) % kImbalances.size()];
  std::vector<idx_t> found(part_of.size());
  const int status = METIS_PartGraphKway(&vertices, &constraints, begin.data(), neighbour.data(),
                                         vertex_weight.data(), nullptr, edge_weight.data(), &wanted, nullptr,
                                         &imbalance, options.data(), &cut, found.data());
  if (status != METIS_OK) fail(ErrorKind::kRuntime, "METIS could not cut the graph (status {})", status);
  std::ranges::copy(found, part_of.begin());
  return part_of;
}

std::int32_t piece_count(const PieceGraph& graph, const PieceLimits& limits, std::int32_t devices) {
  const std::int32_t ops = graph.total_size();
  const std::int32_t largest = std::ranges::max(graph.size);
  if (largest > limits.max) {
    fail(ErrorKind::kInfeasible,
         "pieces of at most {} ops: {} ops have to stay together (an op with its backward, or all that use "
         "one "
         "weight); raise the maximum",
         limits.max, largest);
  }
  const std::int32_t fewest = (ops + limits.max - 1) / limits.max;
  const std::int32_t most = std::min(ops / limits.min, graph.vertices());
  if (fewest > most) {
    fail(ErrorKind::kInfeasible,
         "pieces of {} to {} ops: the graph's {} ops don't divide into such pieces; lower the minimum to {}",
         limits.min, limits.max, ops, ops / fewest);
  }
  if (fewest <= devices) return std::min(devices, most);
  const std::int32_t rounded = (fewest + devices - 1) / devices * devices;
  return rounded <= most ? rounded : fewest;
}

std::optional<std::vector<std::int32_t>> cut_pieces(const PieceGraph& graph, std::int32_t pieces,
                                                    const PieceLimits& limits, std::int32_t seed) {
  std::vector<std::int32_t> piece_of = cut_graph(graph, pieces, seed);
  if (!Repair(graph, pieces, limits, piece_of).run()) return std::nullopt;
  return piece_of;
}

}  // namespace orrery

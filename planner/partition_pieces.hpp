#pragma once
// Cutting a graph into pieces: METIS (Karypis and Kumar 1998) for few bytes between pieces of equal
// cost, then moves of single groups until every piece has as many ops as it must and may.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/partition.hpp"
#include "planner/partition_problem.hpp"

namespace orrery {

// By vertex, its part. Parts cost about the same; some may be empty. The answer depends on the arguments
// alone. REQUIRES: parts ≥ 1. Not to be called from two threads at once: METIS draws from the C library's
// random numbers.
std::vector<std::int32_t> cut_graph(const PieceGraph& graph, std::int32_t parts, std::int32_t seed);

// How many pieces: as many as devices where the limits allow it; where pieces have to be smaller, a multiple
// of that if possible. THROWS Error(kInfeasible) when no number of pieces keeps the limits.
std::int32_t piece_count(const PieceGraph& graph, const PieceLimits& limits, std::int32_t devices);

// cut_graph with every piece within the limits; nothing where no move of a single vertex leads there.
std::optional<std::vector<std::int32_t>> cut_pieces(const PieceGraph& graph, std::int32_t pieces,
                                                    const PieceLimits& limits, std::int32_t seed);

}  // namespace orrery

#pragma once
// Pieces that talk much get devices with fast links between them.

#include <cstdint>
#include <vector>

#include "planner/partition_problem.hpp"
#include "topology/cluster.hpp"

namespace orrery {

// Seconds that one byte takes from device to device: row · devices + column.
std::vector<double> seconds_per_byte(const Router& router);

// What a mapping costs: for every pair of parts, its bytes times the seconds per byte between their devices.
double mapping_cost_s(const PieceGraph& parts, const std::vector<std::int32_t>& device_of,
                      const std::vector<double>& seconds_per_byte, std::int32_t devices);

// A device of its own for each part, at the least mapping_cost_s: exactly for up to 8 devices; else the best
// that exchanges of two devices reach from a greedy start. Of equal mappings, the first one in the order of
// devices. REQUIRES: at most as many parts as devices.
std::vector<std::int32_t> map_parts(const PieceGraph& parts, const std::vector<double>& seconds_per_byte,
                                    std::int32_t devices);

}  // namespace orrery

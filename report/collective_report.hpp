#pragma once
// One collective over a sweep of sizes as nccl-tests prints it, for one algorithm or several side by side,
// and the size from which on each is efficient.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/collective_sweep.hpp"

namespace orrery {

// A sweep of one algorithm; "auto" is what NCCL chooses at each size.
struct CollectiveSeries {
  std::string algorithm;
  std::vector<CollectiveRow> rows;  // By size.
};

// Below this share of its best bus bandwidth a collective is too small to be worth its start.
inline constexpr double kEfficientShare = 0.8;

// The smallest size swept from which on every size reaches that share of the series' best bus bandwidth.
// REQUIRES: rows.
std::int64_t efficient_bytes(std::span<const CollectiveRow> rows);

// The series that is fastest at each size; an index into `all`. REQUIRES: the same sizes everywhere.
std::vector<std::size_t> fastest(std::span<const CollectiveSeries> all);

std::string to_table(std::span<const CollectiveSeries> all, CollectiveKind kind, const Cluster& cluster);
std::string to_json(std::span<const CollectiveSeries> all, CollectiveKind kind, const Cluster& cluster);

}  // namespace orrery

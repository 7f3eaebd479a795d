#pragma once
// A comparison of timelines as a table for people and as JSON.

#include <string>

#include "calibration/compare.hpp"

namespace orrery {

struct CompareTableOptions {
  std::size_t rows = 15;  // Of each list, the largest; 0: all.
};

// REQUIRES: `comparison` is of these two.
std::string to_table(const TimelineComparison& comparison, const TimelineRecord& predicted,
                     const TimelineRecord& measured, const CompareTableOptions& options = {});
std::string to_json(const TimelineComparison& comparison, const TimelineRecord& predicted,
                    const TimelineRecord& measured);

}  // namespace orrery

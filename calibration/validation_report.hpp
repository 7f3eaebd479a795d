#pragma once
// A ValidationReport as people and programs read it.

#include <cstdint>
#include <string>
#include <vector>

#include "calibration/validation.hpp"

namespace orrery {

// A source and GPU kind counts towards the overall figure from this many predicted rows on.
inline constexpr std::int64_t kMinGroupRows = 2;

struct ValidationTotals {
  std::int64_t rows = 0, predicted = 0;
  std::int64_t groups = 0;      // That count.
  double median_abs_error = 0;  // The median of these groups' medians.
  double coverage = 0;          // Mean over these groups.
};
ValidationTotals totals(const ValidationReport& report);

// The share of |error| that 90 % of the group's rows stay under (nearest rank), and its worst rows' ids.
struct GroupTail {
  double p90_abs_error = 0;
  std::vector<std::string> worst;  // Worst first, at most `count`.
};
GroupTail tail(const ValidationReport& report, const ValidationGroup& group, std::size_t count);

// Groups with their errors, then what was refused and why. `rows` lists every predicted row as well.
std::string to_table(const ValidationReport& report, bool rows);
std::string to_markdown(const ValidationReport& report);
std::string to_json(const ValidationReport& report);

}  // namespace orrery

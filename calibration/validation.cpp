#include "calibration/validation.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace orrery {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t middle = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

void group_rows(ValidationReport& report) {
  struct Members {
    std::vector<double> errors;
    std::int64_t covered = 0, refused = 0;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Members> members;
  for (const ValidationRow& row : report.rows) {
    Members& group = members[{row.source, row.gpu, row.family}];
    group.errors.push_back(row.relative_error());
    group.covered += row.covered();
  }
  for (const ValidationRefusal& refusal : report.refused)
    members[{refusal.source, refusal.gpu, refusal.family}].refused += refusal.rows;

  report.groups.clear();
  for (const auto& [key, group] : members) {
    ValidationGroup result;
    std::tie(result.source, result.gpu, result.family) = key;
    result.predicted = static_cast<std::int64_t>(group.errors.size());
    result.rows = result.predicted + group.refused;
    std::vector<double> absolute = group.errors;
    for (double& error : absolute) error = std::abs(error);
    result.median_abs_error = median(std::move(absolute));
    result.median_error = median(group.errors);
    if (result.predicted > 0)
      result.coverage = static_cast<double>(group.covered) / static_cast<double>(result.predicted);
    report.groups.push_back(std::move(result));
  }
}

}  // namespace orrery

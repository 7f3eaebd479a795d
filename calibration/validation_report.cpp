#include "calibration/validation_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace orrery {
namespace {

constexpr std::size_t kWorstRows = 2;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Rows refused for one reason, over all groups.
std::vector<std::pair<std::string, std::int64_t>> reasons(const ValidationReport& report) {
  std::map<std::string, std::int64_t> counts;
  for (const ValidationRefusal& refusal : report.refused) counts[refusal.reason] += refusal.rows;
  std::vector<std::pair<std::string, std::int64_t>> list(counts.begin(), counts.end());
  std::ranges::stable_sort(list, std::ranges::greater{}, &std::pair<std::string, std::int64_t>::second);
  return list;
}

// Groups of which something was predicted; the others show under the refused rows.
std::vector<const ValidationGroup*> predicted_groups(const ValidationReport& report) {
  std::vector<const ValidationGroup*> list;
  for (const ValidationGroup& group : report.groups) {
    if (group.predicted > 0) list.push_back(&group);
  }
  return list;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }
std::string signed_percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

std::string overall_line(const ValidationReport& report) {
  const ValidationTotals all = totals(report);
  return fmt::format(
      "overall: median error {} over {} groups of {} or more rows, {} of the measurements inside their 90 % "
      "interval; {} of {} rows predicted",
      percent(all.median_abs_error), all.groups, kMinGroupRows, percent(all.coverage), all.predicted,
      all.rows);
}

}  // namespace

ValidationTotals totals(const ValidationReport& report) {
  ValidationTotals all;
  std::vector<double> medians;
  for (const ValidationGroup& group : report.groups) {
    all.rows += group.rows;
    all.predicted += group.predicted;
    if (group.predicted < kMinGroupRows) continue;
    medians.push_back(group.median_abs_error);
    all.coverage += group.coverage;
  }
  all.groups = std::ssize(medians);
  if (all.groups > 0) all.coverage /= static_cast<double>(all.groups);
  all.median_abs_error = median(std::move(medians));
  return all;
}

GroupTail tail(const ValidationReport& report, const ValidationGroup& group, std::size_t count) {
  std::vector<std::pair<double, const std::string*>> errors;
  for (const ValidationRow& row : report.rows) {
    if (row.source == group.source && row.gpu == group.gpu && row.family == group.family)
      errors.emplace_back(std::abs(row.relative_error()), &row.id);
  }
  std::ranges::stable_sort(errors, std::ranges::greater{}, &std::pair<double, const std::string*>::first);
  GroupTail result;
  if (errors.empty()) return result;
  // Of n ascending values the ceil(0.9 n)-th.
  const auto rank = static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(errors.size())));
  result.p90_abs_error = errors[errors.size() - rank].first;
  for (std::size_t i = 0; i < std::min(count, errors.size()); ++i) result.worst.push_back(*errors[i].second);
  return result;
}

std::string to_table(const ValidationReport& report, bool rows) {
  std::string text =
      fmt::format("{:<18} {:<13} {:<24} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8}  {}\n", "source", "GPU", "family",
                  "rows", "predicted", "median", "signed", "p90", "covered", "worst");
  for (const ValidationGroup* group : predicted_groups(report)) {
    const GroupTail end = tail(report, *group, kWorstRows);
    text += fmt::format("{:<18} {:<13} {:<24} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8}  {}\n", group->source,
                        group->gpu, group->family, group->rows, group->predicted,
                        percent(group->median_abs_error), signed_percent(group->median_error),
                        percent(end.p90_abs_error), percent(group->coverage), fmt::join(end.worst, ", "));
  }
  text += "\n" + overall_line(report) + "\n";
  if (!report.refused.empty()) text += "\nnot predicted:\n";
  for (const auto& [reason, count] : reasons(report)) text += fmt::format("{:>6}  {}\n", count, reason);
  if (!rows) return text;
  text += fmt::format("\n{:<24} {:>14} {:>14} {:>9}  {}\n", "row", "measured s", "predicted s", "error",
                      "90 % interval");
  for (const ValidationRow& row : report.rows) {
    text += fmt::format("{:<24} {:>14.6g} {:>14.6g} {:>9}  {:.6g} to {:.6g}{}\n", row.id, row.measured_s,
                        row.predicted_s, signed_percent(row.relative_error()), row.lower_s, row.upper_s,
                        row.covered() ? "" : "  outside");
  }
  return text;
}

std::string to_markdown(const ValidationReport& report) {
  std::string text =
      "| source | GPU | family | rows | predicted | median error | signed | p90 | in 90 % interval | worst "
      "rows |\n"
      "|---|---|---|--:|--:|--:|--:|--:|--:|---|\n";
  for (const ValidationGroup* group : predicted_groups(report)) {
    const GroupTail end = tail(report, *group, kWorstRows);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", group->source, group->gpu,
                        group->family, group->rows, group->predicted, percent(group->median_abs_error),
                        signed_percent(group->median_error), percent(end.p90_abs_error),
                        percent(group->coverage), fmt::join(end.worst, ", "));
  }
  std::string overall = overall_line(report);
  overall.front() = 'O';
  text += "\n" + overall + ".\n";
  if (report.refused.empty()) return text;
  text += "\n| rows not predicted | because |\n|--:|---|\n";
  for (const auto& [reason, count] : reasons(report)) text += fmt::format("| {} | {} |\n", count, reason);
  return text;
}

std::string to_json(const ValidationReport& report) {
  using Json = nlohmann::ordered_json;
  const ValidationTotals all = totals(report);
  Json groups = Json::array(), refused = Json::array(), rows = Json::array();
  for (const ValidationGroup& group : report.groups) {
    const GroupTail end = tail(report, group, kWorstRows);
    groups.push_back({{"source", group.source},
                      {"gpu", group.gpu},
                      {"family", group.family},
                      {"rows", group.rows},
                      {"predicted", group.predicted},
                      {"median_abs_error", group.median_abs_error},
                      {"median_error", group.median_error},
                      {"p90_abs_error", end.p90_abs_error},
                      {"coverage", group.coverage},
                      {"worst", end.worst}});
  }
  for (const ValidationRefusal& refusal : report.refused)
    refused.push_back({{"source", refusal.source},
                       {"gpu", refusal.gpu},
                       {"family", refusal.family},
                       {"reason", refusal.reason},
                       {"rows", refusal.rows}});
  for (const ValidationRow& row : report.rows)
    rows.push_back({{"id", row.id},
                    {"source", row.source},
                    {"gpu", row.gpu},
                    {"family", row.family},
                    {"measured_s", row.measured_s},
                    {"predicted_s", row.predicted_s},
                    {"relative_error", row.relative_error()},
                    {"lower_s", row.lower_s},
                    {"upper_s", row.upper_s}});
  const Json json = {{"rows_in_file", all.rows},      {"predicted", all.predicted},
                     {"groups_counted", all.groups},  {"median_abs_error", all.median_abs_error},
                     {"coverage", all.coverage},      {"groups", std::move(groups)},
                     {"refused", std::move(refused)}, {"rows", std::move(rows)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery

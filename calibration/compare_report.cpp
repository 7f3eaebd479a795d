#include "calibration/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

std::string shown_error(const ComparedTime& time) {
  return std::isinf(time.error()) ? "not measured" : fmt::format("{:+.1f} %", 100 * time.error());
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }

void add_head(const TimelineComparison& comparison, const TimelineRecord& predicted,
              const TimelineRecord& measured, std::string& text) {
  text +=
      fmt::format("{}: step {} ms predicted, {} ms {}: {}\n", predicted.program,
                  milliseconds(comparison.step.predicted_s), milliseconds(comparison.step.measured_s),
                  measured.measured ? "measured" : "in the second prediction", shown_error(comparison.step));
  const double all = comparison.single_s + comparison.run_s;
  if (all > 0)
    text += fmt::format(
        "compared instruction by instruction: {:.1f} % of the measured busy time; as runs of "
        "several: {:.1f} %\n",
        100 * comparison.single_s / all, 100 * comparison.run_s / all);
  if (measured.traced_step_s && measured.untraced_step_s && *measured.untraced_step_s > 0)
    text += fmt::format("tracing made the measured step {:+.1f} % longer\n",
                        100 * (*measured.traced_step_s / *measured.untraced_step_s - 1));
  double clock_s = 0;
  for (const RecordedClock& clock : measured.clocks) clock_s = std::max(clock_s, clock.error_s);
  if (clock_s > 0) text += fmt::format("clocks of ranks agree within {:.1f} us\n", 1e6 * clock_s);
}

std::string row(std::string_view name, const ComparedTime& busy, const ComparedTime& waiting) {
  return fmt::format("  {:<44} {:>10} {:>10} {:>13} {:>10} {:>10}\n", name, milliseconds(busy.predicted_s),
                     milliseconds(busy.measured_s), shown_error(busy), milliseconds(waiting.predicted_s),
                     milliseconds(waiting.measured_s));
}

std::string heading(std::string_view what) {
  return fmt::format("\n  {:<44} {:>10} {:>10} {:>13} {:>10} {:>10}\n", what, "predicted", "measured",
                     "error", "waits", "waited");
}

std::size_t shown_rows(std::size_t all, std::size_t rows) { return rows == 0 ? all : std::min(all, rows); }

void add_rest(std::size_t all, std::size_t shown, std::string& text) {
  if (all > shown) text += fmt::format("  … and {} more\n", all - shown);
}

void add_ranks_missing(const char* side, const std::vector<std::int32_t>& ranks, std::string& text) {
  if (!ranks.empty())
    text +=
        fmt::format("{} ranks are only in the {}, the first is rank {}\n", ranks.size(), side, ranks.front());
}

Json to_json(const ComparedTime& time) {
  Json entry = {{"predicted_s", time.predicted_s}, {"measured_s", time.measured_s}};
  entry["error"] = std::isinf(time.error()) ? Json() : Json(time.error());
  return entry;
}

}  // namespace

std::string to_table(const TimelineComparison& comparison, const TimelineRecord& predicted,
                     const TimelineRecord& measured, const CompareTableOptions& options) {
  std::string text;
  add_head(comparison, predicted, measured, text);
  text += heading("by op, ms over all ranks");
  std::size_t rows = shown_rows(comparison.ops.size(), options.rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const ComparedOp& op = comparison.ops[i];
    const std::string name = op.purpose.empty() ? op.label : fmt::format("{} ({})", op.label, op.purpose);
    text += row(fmt::format("{} x {}", op.count, name), op.busy, op.waiting);
  }
  add_rest(comparison.ops.size(), rows, text);
  text += heading("by rank, ms");
  rows = shown_rows(comparison.ranks.size(), options.rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const ComparedRank& rank = comparison.ranks[i];
    text += row(fmt::format("rank {} ({})", rank.rank, rank.role), rank.busy, rank.waiting);
  }
  add_rest(comparison.ranks.size(), rows, text);
  if (!comparison.unmatched.empty()) text += "\nonly on one side:\n";
  rows = shown_rows(comparison.unmatched.size(), options.rows);
  for (std::size_t i = 0; i < rows; ++i) {
    const Unmatched& one = comparison.unmatched[i];
    text += fmt::format("  {} of role {}, on {} ranks: only {}\n", one.name, one.role, one.ranks,
                        one.predicted ? "predicted" : "measured");
  }
  add_rest(comparison.unmatched.size(), rows, text);
  add_ranks_missing("prediction", comparison.only_predicted_ranks, text);
  add_ranks_missing("measurement", comparison.only_measured_ranks, text);
  return text;
}

std::string to_json(const TimelineComparison& comparison, const TimelineRecord& predicted,
                    const TimelineRecord& measured) {
  Json file;
  file["program"] = predicted.program;
  file["program_hash"] = predicted.program_hash;
  file["second_is_measured"] = measured.measured;
  file["step"] = to_json(comparison.step);
  file["single_s"] = comparison.single_s;
  file["run_s"] = comparison.run_s;
  file["ops"] = Json::array();
  for (const ComparedOp& op : comparison.ops)
    file["ops"].push_back({{"label", op.label},
                           {"purpose", op.purpose},
                           {"kind", op.kind},
                           {"count", op.count},
                           {"busy", to_json(op.busy)},
                           {"waiting", to_json(op.waiting)}});
  file["ranks"] = Json::array();
  for (const ComparedRank& rank : comparison.ranks)
    file["ranks"].push_back({{"rank", rank.rank},
                             {"role", rank.role},
                             {"busy", to_json(rank.busy)},
                             {"waiting", to_json(rank.waiting)}});
  file["unmatched"] = Json::array();
  for (const Unmatched& one : comparison.unmatched)
    file["unmatched"].push_back({{"side", one.predicted ? "predicted" : "measured"},
                                 {"role", one.role},
                                 {"name", one.name},
                                 {"ranks", one.ranks}});
  file["only_predicted_ranks"] = comparison.only_predicted_ranks;
  file["only_measured_ranks"] = comparison.only_measured_ranks;
  return file.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery

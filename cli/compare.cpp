// orrery compare: a predicted timeline against a measured one.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <cmath>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "calibration/compare.hpp"
#include "calibration/compare_report.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/input.hpp"
#include "cli/output.hpp"
#include "model/timeline_json.hpp"

namespace orrery {
namespace {

struct Options {
  std::string predicted, measured, json;
  std::optional<double> threshold;
  bool all = false;
};

void compare_files(const Options& options) {
  if (!options.json.empty()) expect_writable(options.json);
  const TimelineRecord predicted = parse_timeline_json(read_file(options.predicted), options.predicted);
  const TimelineRecord measured = parse_timeline_json(read_file(options.measured), options.measured);
  const TimelineComparison comparison = compare_timelines(predicted, measured);
  if (!options.json.empty())
    write_file(options.json, [&](std::ostream& out) { out << to_json(comparison, predicted, measured); });
  CompareTableOptions rows;
  if (options.all) rows.rows = 0;
  if (!is_standard_output(options.json)) print(to_table(comparison, predicted, measured, rows));
  if (options.threshold && exceeds(comparison, *options.threshold))
    fail(ErrorKind::kDisagreement, "the step times differ by {:.1f} %, more than the {:.1f} % of --threshold",
         100 * std::abs(comparison.step.error()), 100 * *options.threshold);
}

}  // namespace

void add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Hold a measured timeline against the predicted one of the same Program");
  auto options = std::make_shared<Options>();
  command->add_option("PREDICTED", options->predicted, "Timeline that simulate --timeline wrote")->required();
  command->add_option("MEASURED", options->measured, "Timeline of a run, or of another prediction")
      ->required();
  add_json(*command, options->json);
  command
      ->add_option("--threshold", options->threshold,
                   "End with 6 where the step times differ by more than this part of the measured one")
      ->check(CLI::Range(0.0, 1000.0));
  command->add_flag("--all", options->all, "List every op, rank and instruction, not only the largest");
  command->footer(
      "Examples:\n"
      "  orrery simulate scenarios/host-dp2.yaml --timeline predicted.json\n"
      "  orrery compare predicted.json measured.json\n"
      "  orrery compare predicted.json measured.json --threshold 0.1 --json differences.json\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad file or files of different Programs, 5 failed while "
      "writing,\n"
      "6 the step times differ by more than --threshold");
  command->callback([options] { compare_files(*options); });
}

}  // namespace orrery

// orrery validate: predictions held against a table of published measurements.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "calibration/collective_validation.hpp"
#include "calibration/kernel_validation.hpp"
#include "calibration/training.hpp"
#include "calibration/validation_report.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, markdown;
  std::optional<double> threshold;
  int threads = 0;
  bool rows = false, calibrated = false;
};

int thread_count(int asked) {
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// The kind of table follows from a column that only this kind has.
ValidationReport validate_file(const Options& options, Progress& progress) {
  const CsvTable table = read_csv(options.file);
  if (options.calibrated && !table.has_column("collective"))
    fail(ErrorKind::kInput,
         "{}:1: --calibrated is for tables of collectives; expected a column \"collective\"", options.file);
  if (table.has_column("measured_step_s")) {
    TrainingOptions training;
    training.threads = thread_count(options.threads);
    training.progress = [&](std::size_t done, std::size_t all) {
      progress.stage(fmt::format("predicting row {} of {}", done, all));
    };
    return validate_training(options.file, training);
  }
  progress.stage("predicting");
  if (table.has_column("collective"))
    return options.calibrated ? validate_calibrated_collectives(options.file)
                              : validate_collectives(options.file);
  if (table.has_column("shape_json")) return validate_kernels(options.file);
  fail(ErrorKind::kInput,
       "{}:1: not a table of measurements that can be validated: expected a column \"measured_step_s\" "
       "(training "
       "steps), \"collective\" (collectives) or \"shape_json\" (kernels); docs/user-guide/trust.md has their "
       "columns",
       options.file);
}

void check_threshold(const ValidationReport& report, double threshold) {
  const ValidationTotals all = totals(report);
  if (all.groups == 0)
    fail(ErrorKind::kDisagreement, "no group of {} or more rows could be predicted", kMinGroupRows);
  if (all.median_abs_error <= threshold) return;
  fail(ErrorKind::kDisagreement, "median error {:.1f} % over {} groups is above the threshold of {:.1f} %",
       100 * all.median_abs_error, all.groups, 100 * threshold);
}

void validate(const Options& options) {
  for (const std::string& file : {options.json, options.markdown}) {
    if (!file.empty()) expect_writable(file);
  }
  Progress progress;
  progress.stage("reading");
  const ValidationReport report = validate_file(options, progress);
  progress.finish();
  if (!options.json.empty()) write_file(options.json, [&](std::ostream& out) { out << to_json(report); });
  if (!options.markdown.empty())
    write_file(options.markdown, [&](std::ostream& out) { out << to_markdown(report); });
  if (!is_standard_output(options.json) && !is_standard_output(options.markdown))
    print(to_table(report, options.rows));
  if (options.threshold) check_threshold(report, *options.threshold);
}

}  // namespace

void add_validate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("validate", "Hold predictions against a table of measurements (CSV)");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Training steps, collectives or kernels; its header says which")
      ->required();
  command->add_option("--json", options->json,
                      "Write every group, refusal and row as JSON to this file; - is standard output");
  command->add_option("--markdown", options->markdown, "Write the tables as Markdown to this file");
  command->add_flag("--calibrated", options->calibrated,
                    "Of collectives: calibrate on one sweep of a machine, predict its other collectives");
  command->add_flag("--rows", options->rows, "List every predicted row");
  command
      ->add_option("--threshold", options->threshold,
                   "End with 6 when the overall median error exceeds this fraction, e.g. 0.15")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--threads", options->threads, "Rows predicted at a time; the result doesn't depend on it")
      ->check(CLI::Range(1, 1024));
  command->footer(
      "Examples:\n"
      "  orrery validate training.csv\n"
      "  orrery validate kernels.csv --rows --json kernels.json\n"
      "  orrery validate training.csv --threshold 0.15\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad file, 5 failed while running or writing, 6 above the "
      "threshold");
  command->callback([options] { validate(*options); });
}

}  // namespace orrery

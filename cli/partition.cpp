// orrery partition: placements of single ops on the devices of a machine, side by side.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/engines.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "planner/partition_lower.hpp"
#include "report/partition_report.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, strategy = "all";
  std::optional<std::int32_t> min_piece, max_piece;
  Overrides overrides;
};

struct Case {
  PartitionStrategy strategy = PartitionStrategy::kPerLayer;
  PieceLimits limits;
};

// What the command line says over what the file says.
std::vector<Case> cases(const Options& options, const PartitionRequest& request) {
  std::vector<PieceLimits> pieces = request.pieces;
  if (options.min_piece || options.max_piece) {
    PieceLimits limits;
    limits.min = options.min_piece.value_or(limits.min);
    limits.max = options.max_piece.value_or(limits.max);
    if (limits.max < limits.min)
      fail(ErrorKind::kUsage, "--max-piece {} is less than --min-piece {}", limits.max, limits.min);
    pieces = {limits};
  }
  std::vector<Case> all;
  for (const PartitionStrategy strategy :
       options.strategy == "all" ? request.strategies : all_partition_strategies()) {
    if (options.strategy != "all" && options.strategy != to_string(strategy)) continue;
    if (strategy != PartitionStrategy::kNvLinkNeighbourhood) {
      all.push_back({strategy, {}});
      continue;
    }
    for (const PieceLimits& limits : pieces) all.push_back({strategy, limits});
  }
  return all;
}

void check_program(const Program& program) {
  const std::vector<std::string> faults = verify(program);
  if (faults.empty()) return;
  fail(ErrorKind::kRuntime, "the Program made from the partition is wrong, which is a fault of orrery: {}",
       fmt::join(faults, "\n"));
}

PartitionRow assess(const PartitionProblem& problem, const Scenario& scenario, const Case& wanted) {
  PartitionRow row;
  try {
    const Partition partition = make_partition(problem, wanted.strategy, wanted.limits);
    const Program program = lower_partition(problem, partition);
    check_program(program);
    JobOptions options;
    options.fold = false;  // Devices differ, and links are looked at one by one.
    options.stragglers = scenario.stragglers;
    options.faults = scenario.faults;
    options.watchdog = scenario.watchdog;
    const Job job = make_job(program, scenario.cluster, scenario.profile, options);
    const EngineRun run = run_engine(scenario, job);
    fmt::print(stderr, "{}", run.remarks);
    if (!run.agree)
      fail(ErrorKind::kDisagreement, "{}: the engines differ, which is a fault of orrery",
           to_string(wanted.strategy));
    return summarize(problem, wanted.strategy, wanted.limits, partition, program, run.timeline);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInfeasible) throw;
    row.strategy = wanted.strategy;
    row.limits = wanted.limits;
    row.refused = error.what();
    return row;
  }
}

void compare_partitions(const Options& options) {
  Progress progress;
  progress.stage("reading");
  const Scenario scenario = load_scenario(options.file, options.overrides);
  if (scenario.plan.settings.fp8 != Fp8::kNone) {
    fail(ErrorKind::kInfeasible, "{}: plan.fp8: {} isn't for partitions of single ops; use none",
         options.file, to_string(scenario.plan.settings.fp8));
  }
  const std::vector<Case> wanted = cases(options, scenario.partition);
  if (!options.json.empty()) expect_writable(options.json);
  const Graph graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  const PartitionProblem problem(graph, scenario.plan, scenario.cluster, scenario.profile);
  std::vector<PartitionRow> rows;
  for (const Case& one : wanted) {
    progress.stage(fmt::format("{} of {}: {}", rows.size() + 1, wanted.size(), to_string(one.strategy)));
    rows.push_back(assess(problem, scenario, one));
  }
  progress.finish();
  if (!options.json.empty()) {
    write_file(options.json, [&](std::ostream& out) { out << to_json(rows, scenario, problem); });
  }
  if (!is_standard_output(options.json)) print(to_table(rows, scenario, problem));
  const auto refused = [](const PartitionRow& row) { return !row.refused.empty(); };
  if (std::ranges::all_of(rows, refused)) {
    fail(ErrorKind::kInfeasible, "{}: {}", options.file, rows.front().refused);
  }
}

}  // namespace

void add_partition(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("partition", "Compare placements of single ops on the devices of a machine");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  command->add_option("--strategy", options->strategy, "The one to look at; all: those of the file")
      ->check(CLI::IsMember({"all", "per-layer", "per-operator", "nvlink-neighbourhood"}))
      ->capture_default_str();
  command
      ->add_option("--min-piece", options->min_piece, "Ops that a piece of nvlink-neighbourhood has at least")
      ->check(CLI::Range(1, 1'000'000'000));
  command->add_option("--max-piece", options->max_piece, "Ops that it has at most")
      ->check(CLI::Range(1, 1'000'000'000));
  add_json(*command, options->json);
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery partition scenarios/partition-llama3-8b-dgx1.yaml\n"
      "  orrery partition run.yaml --strategy nvlink-neighbourhood --min-piece 64 --max-piece 2048\n"
      "  orrery partition run.yaml --set cluster.node=pcie-a100-bridged --json -\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario or model file, 4 no partition is possible, 5 "
      "failed\n"
      "while running or writing, 6 the engines of engine: both disagree");
  command->callback([options] { compare_partitions(*options); });
}

}  // namespace orrery

// orrery remap: remapping policies under the faults of a scenario, side by side.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/engines.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "planner/lower.hpp"
#include "report/remap_report.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, policy = "all";
  std::optional<std::int64_t> steps;
  Overrides overrides;
};

RemapOptions remap_options(const Scenario& scenario) {
  RemapOptions options;
  options.steps = scenario.remap.steps;
  options.keep_batch = scenario.remap.keep_batch;
  options.checkpoint_every = scenario.remap.checkpoint_every;
  options.costs = scenario.remap.costs;
  options.job.fold = scenario.fold;
  options.job.stragglers = scenario.stragglers;
  options.job.faults = scenario.faults;
  options.job.watchdog = scenario.watchdog;
  options.engine = [&scenario](const Job& job, EngineCounters* counters) {
    EngineRun run = run_engine(scenario, job);
    if (!run.agree)
      fail(ErrorKind::kDisagreement, "the engines differ, which is a fault of orrery: {}", run.remarks);
    *counters = std::move(run.counters);
    return std::move(run.timeline);
  };
  return options;
}

std::vector<RemapPolicy> policies(const Options& options, const RemapRequest& request) {
  if (options.policy == "all") return request.policies;
  for (const RemapPolicy policy : all_remap_policies())
    if (options.policy == to_string(policy)) return {policy};
  return {};  // The command line's check knows no others.
}

void compare_policies(const Options& options) {
  Progress progress;
  progress.stage("reading");
  Prepared prepared = prepare(options.file, options.overrides);
  Scenario& scenario = prepared.scenario;
  if (options.steps) scenario.remap.steps = *options.steps;
  if (!options.json.empty()) expect_writable(options.json);
  progress.stage("drawing faults");
  if (!scenario.random_faults.rates.empty())
    draw_random_faults(scenario, lower(prepared.graph, prepared.plan));
  if (scenario.faults.empty() && scenario.random_faults.rates.empty())
    fail(ErrorKind::kInput, "{}: has no faults to remap around; add faults or random_faults", options.file);
  const RemapOptions remap = remap_options(scenario);
  std::vector<RemapRun> runs;
  for (const RemapPolicy policy : policies(options, scenario.remap)) {
    progress.stage(std::string(to_string(policy)));
    runs.push_back(
        run_policy(policy, prepared.graph, prepared.plan, scenario.cluster, scenario.profile, remap));
  }
  progress.finish();
  if (!options.json.empty())
    write_file(options.json, [&](std::ostream& out) { out << to_json(runs, scenario); });
  if (!is_standard_output(options.json)) print(to_table(runs, scenario));
}

}  // namespace

void add_remap(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("remap", "Compare what a run does about faults: nothing, new rings, new groups");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML) with faults or random_faults")->required();
  command->add_option("--policy", options->policy, "The one to look at; all: those of the file")
      ->check(CLI::IsMember({"all", "static", "re-ring", "re-group"}))
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Steps of the run; else the file's")
      ->check(CLI::Range(1, 1'000'000));
  add_json(*command, options->json);
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery remap scenarios/faults-node-lost.yaml\n"
      "  orrery remap run.yaml --policy re-group --steps 1000 --json -\n"
      "  orrery remap run.yaml --set 'faults=[{rank: 8, what: nic, factor: 0.1, from: 2s}]'\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario or model file, 4 the plan can't work, 5 failed "
      "while\n"
      "running or writing, 6 the engines of engine: both disagree");
  command->callback([options] { compare_policies(*options); });
}

}  // namespace orrery

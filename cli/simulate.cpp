// orrery simulate: a scenario in, its predicted step out.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/engines.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "model/timeline_json.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "report/summary.hpp"
#include "report/trace.hpp"
#include "simulator/job.hpp"
#include "simulator/uncertainty.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, trace, program, timeline, engine, passes;
  Overrides overrides;
  double tolerance = kEngineTolerance;
  int threads = 0;
  bool no_fold = false, allow_oom = false, verbose = false, no_interval = false;
};

void warn(std::string_view text) { fmt::print(stderr, "warning: {}\n", text); }

// What the command line says over what the file says.
void apply(const Options& options, Scenario& scenario) {
  if (!options.engine.empty()) scenario.engine = options.engine;
  if (options.no_fold) scenario.fold = false;
  if (!options.json.empty()) scenario.output.json = options.json;
  if (!options.trace.empty()) scenario.output.trace = options.trace;
}

void check_memory(const Prepared& prepared, const Program& program, bool allow) {
  std::string fault = memory_fault(program, prepared.plan, prepared.scenario.cluster.node.gpu);
  if (fault.empty()) return;
  fault = fmt::format("{}: {}", prepared.scenario.file.string(), fault);
  if (!allow) fail(ErrorKind::kInfeasible, "{}\n(--allow-oom simulates it all the same)", fault);
  warn(fault);
}

void check_program(const Program& program) {
  const std::vector<std::string> faults = verify(program);
  if (faults.empty()) return;
  fail(ErrorKind::kRuntime, "the Program made from the plan is wrong, which is a fault of orrery: {}",
       fmt::join(faults, "\n"));
}

void print_background(const Prepared& prepared) {
  for (const std::string& note : prepared.scenario.notes) fmt::print(stderr, "assumed: {}\n", note);
  for (const std::string& line : prepared.scenario.profile.provenance)
    fmt::print(stderr, "profile: {}\n", line);
}

void print_passes(const std::vector<PassReport>& passes) {
  for (const PassReport& pass : passes) {
    if (!pass.on) {
      fmt::print(stderr, "pass: {} is off\n", to_string(pass.pass));
      continue;
    }
    const bool of_step = pass.pass == LoweringPass::kSplitOptimizer;
    fmt::print(stderr, "pass: {} changed {} instructions of a {}, over all stages{}\n", to_string(pass.pass),
               pass.changes, of_step ? "step" : "micro-batch",
               of_step ? "" : fmt::format(", in {:.1f} ms", 1e3 * pass.seconds));
  }
}

void print_counters(const Job& job, const EngineCounters& counters, const Timeline& timeline) {
  fmt::print(stderr, "engine: {} rank classes, {} instructions in {} steps, {} flow events{}\n",
             job.classes.size(), counters.instructions, timeline.steps, counters.flow_events,
             counters.one_pass ? ", one pass (nothing shared a link)" : "");
}

void print_interval(const StepInterval& interval) {
  for (int family = 0; family < kCostFamilyCount; ++family) {
    const double sensitivity = interval.sensitivity[static_cast<std::size_t>(family)];
    if (sensitivity == 0) continue;
    fmt::print(stderr, "interval: one standard deviation of {} costs {:+.1f} % ({})\n",
               to_string(static_cast<CostFamily>(family)), 100 * std::expm1(sensitivity),
               interval.run_again ? "run again" : "by its share of the step");
  }
}

Summary summarize_job(const Options& options, const Prepared& prepared, const Job& job,
                      const EngineRun& run) {
  const Scenario& scenario = prepared.scenario;
  const Timeline& timeline = run.timeline;
  Summary summary = summarize(scenario, prepared.graph, prepared.plan, *job.program, timeline);
  add_step_times(run.counters.step_ends, summary);
  if (options.no_interval) return summary;
  const StepInterval interval = step_interval(job, scenario.cluster, scenario.profile, timeline);
  summary.step_time_low_s = interval.low_s;
  summary.step_time_high_s = interval.high_s;
  if (options.verbose) print_interval(interval);
  return summary;
}

bool standard_output_taken(const Options& options, const Scenario& scenario) {
  return is_standard_output(scenario.output.json) || is_standard_output(scenario.output.trace) ||
         is_standard_output(options.program) || is_standard_output(options.timeline);
}

// THROWS Error(kDisagreement) when both engines ran and differ.
void tell_remarks(const Options& options, const Scenario& scenario, const EngineRun& run) {
  if (standard_output_taken(options, scenario))
    fmt::print(stderr, "{}", run.remarks);
  else
    print(run.remarks);
  if (run.agree) return;
  const std::string meaning = options.tolerance < kEngineTolerance
                                  ? fmt::format("; rounding alone may reach {:g}", kEngineTolerance)
                                  : ", which is a fault of orrery";
  fail(ErrorKind::kDisagreement, "{}: the engines differ by more than {:g} of a step{}",
       scenario.file.string(), options.tolerance, meaning);
}

void write_results(const Options& options, const Prepared& prepared, const Program& program,
                   const Summary& summary, const Timeline& timeline) {
  const Scenario& scenario = prepared.scenario;
  if (!scenario.output.trace.empty()) {
    write_file(scenario.output.trace, [&](std::ostream& out) { write_trace(out, program, timeline); });
  }
  if (!scenario.output.json.empty()) {
    write_file(scenario.output.json, [&](std::ostream& out) { out << to_json(summary, scenario, program); });
  }
  if (!options.program.empty()) {
    write_file(options.program, [&](std::ostream& out) { out << to_text(program); });
  }
  if (!options.timeline.empty()) {
    write_file(options.timeline,
               [&](std::ostream& out) { out << to_json(record_timeline(program, timeline)); });
  }
  if (standard_output_taken(options, scenario)) {
    for (const std::string& warning : summary.warnings) warn(warning);
  } else {
    print(to_table(summary, scenario, program));  // Has the warnings.
  }
}

int thread_count(int asked) {
  return asked > 0 ? asked : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void simulate_file(const Options& options) {
  Progress progress;
  progress.stage("reading");
  Overrides overrides = options.overrides;
  if (!options.passes.empty()) overrides.push_back("plan.passes=" + options.passes);
  Prepared prepared = prepare(options.file, overrides);
  Scenario& scenario = prepared.scenario;
  apply(options, scenario);
  for (const std::filesystem::path& file :
       {scenario.output.json, scenario.output.trace, std::filesystem::path(options.program),
        std::filesystem::path(options.timeline)}) {
    if (!file.empty()) expect_writable(file);
  }
  if (options.verbose) print_background(prepared);

  progress.stage("lowering");
  std::vector<PassReport> passes;
  const Program program = lower(prepared.graph, prepared.plan, thread_count(options.threads), &passes);
  if (options.verbose) print_passes(passes);
  check_program(program);
  check_memory(prepared, program, options.allow_oom);

  progress.stage("simulating");
  draw_random_faults(scenario, program);
  JobOptions job_options;
  job_options.fold = scenario.fold;
  job_options.stragglers = scenario.stragglers;
  job_options.faults = scenario.faults;
  job_options.watchdog = scenario.watchdog;
  const Job job = make_job(program, scenario.cluster, scenario.profile, job_options);
  const EngineRun run = run_engine(scenario, job, options.tolerance);
  const Timeline& timeline = run.timeline;
  progress.stage("writing");
  progress.finish();
  if (options.verbose) print_counters(job, run.counters, timeline);
  const Summary summary = summarize_job(options, prepared, job, run);
  write_results(options, prepared, program, summary, timeline);
  tell_remarks(options, scenario, run);
}

}  // namespace

void add_simulate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("simulate", "Predict the training step that a scenario file describes");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  add_json(*command, options->json);
  command->add_option("--trace", options->trace, "Write a trace for ui.perfetto.dev to this file");
  command->add_option("--program", options->program, "Write the Program, what each rank does, as text");
  command->add_option("--timeline", options->timeline,
                      "Write when each instruction runs, for orrery compare");
  add_overrides(*command, options->overrides);
  command->add_option("--engine", options->engine, "Simulation engine; both also compares them")
      ->check(CLI::IsMember({"fast", "simgrid", "both"}));
  command
      ->add_option("--engine-tolerance", options->tolerance,
                   "With --engine both: the difference, as a part of the step, up to which they agree")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads to lower with; the result doesn't depend on it")
      ->check(CLI::Range(1, 1024));
  std::string passes =
      "Rewrites of lowering: all, none, default, or names separated by commas, with a minus before "
      "those to switch off.";
  for (const LoweringPass pass : all_lowering_passes()) {
    passes += fmt::format(" {}: {}.", to_string(pass), description(pass));
  }
  command->add_option("--passes", options->passes, passes);
  command->add_flag("--no-fold", options->no_fold, "Simulate every rank, also equal ones");
  command->add_flag("--allow-oom", options->allow_oom,
                    "Only warn when the plan needs more memory than a GPU has");
  command->add_flag("--no-interval", options->no_interval, "Leave out how far the step time may be off");
  command->add_flag("--verbose", options->verbose, "Say what was assumed and what the engine did");
  command->footer(
      "Examples:\n"
      "  orrery simulate scenarios/llama3-8b-8xh100.yaml\n"
      "  orrery simulate run.yaml --set plan.tp=4 --set plan.recompute=full\n"
      "  orrery simulate run.yaml --set 'stragglers=[{rank: 3, slowdown: 1.2}]'\n"
      "  orrery simulate run.yaml --json - | jq .step_time_s\n"
      "  orrery simulate run.yaml --engine both\n"
      "  orrery simulate run.yaml --passes -async-collectives --verbose\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario or model file, 4 the plan can't work, 5 failed "
      "while\n"
      "running or writing, 6 the engines of --engine both disagree");
  command->callback([options] { simulate_file(*options); });
}

}  // namespace orrery

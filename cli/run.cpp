// orrery run: the plan of a scenario performed on this machine's processors.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "executor/train/training.hpp"
#include "model/program_hash.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "report/run_report.hpp"
#include "report/trace.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, trace, log;
  std::optional<std::int64_t> steps;
  Overrides overrides;
  bool pin = false;
};

std::int64_t vocabulary(const Graph& graph) {
  for (const Dim& dim : graph.dims) {
    if (dim.role == DimRole::kVocab) return dim.size;
  }
  return 0;
}

LearningRate learning_rate(const TrainingRequest& request) {
  LearningRate rate;
  rate.peak = request.learning_rate;
  rate.floor = request.learning_rate_floor;
  rate.warmup_steps = request.learning_rate_warmup;
  rate.decay_steps = request.steps;
  for (const Decay decay : {Decay::kConstant, Decay::kLinear, Decay::kCosine}) {
    if (to_string(decay) == request.learning_rate_decay) rate.decay = decay;
  }
  return rate;
}

TrainingSettings settings(const Prepared& prepared) {
  const TrainingRequest& request = prepared.scenario.training;
  TrainingSettings settings;
  settings.data = request.data.empty() ? default_corpus() : request.data;
  settings.token_bytes = static_cast<int>(request.token_bytes);
  settings.vocabulary = vocabulary(prepared.graph);
  settings.shape = {prepared.plan.sequence, prepared.plan.microbatch_size, prepared.plan.global_batch()};
  settings.steps = request.steps;
  settings.seed = request.seed;
  settings.learning_rate = learning_rate(request);
  settings.optimizer.beta1 = request.beta1;
  settings.optimizer.beta2 = request.beta2;
  settings.optimizer.epsilon = request.epsilon;
  settings.optimizer.weight_decay = request.weight_decay;
  settings.clip_norm = request.clip;
  return settings;
}

void write_log(const std::string& file, const host::RunResult& result, const LearningRate& rate) {
  write_file(file, [&](std::ostream& out) {
    for (std::size_t step = 0; step < result.losses.size(); ++step) {
      const double norm = step < result.gradient_norms.size() ? result.gradient_norms[step] : -1;
      out << log_line(static_cast<std::int64_t>(step), result.losses[step], norm,
                      rate.at(static_cast<std::int64_t>(step)));
    }
  });
}

RunSummary summarize(const Prepared& prepared, const Program& program, const std::vector<MemoryPlan>& memory,
                     const host::RunResult& result) {
  RunSummary summary;
  summary.ranks = fmt::format("{} threads", program.world_size());
  summary.losses = result.losses;
  summary.gradient_norms = result.gradient_norms;
  summary.step_s = result.step_s;
  summary.parameter_hash = host::to_text(result.parameter_hash);
  summary.program_hash = program_hash(program);
  summary.peak_memory_bytes = result.peak_memory_bytes;
  for (const MemoryPlan& plan : memory) {
    summary.predicted_memory_bytes = std::max(summary.predicted_memory_bytes, plan.arena_bytes);
  }
  summary.workspace_bytes = result.workspace_bytes;
  summary.tokens_per_step = static_cast<double>(prepared.plan.global_batch() * prepared.plan.sequence);
  return summary;
}

void run_file(const Options& options) {
  Progress progress;
  progress.stage("reading");
  Prepared prepared = prepare(options.file, options.overrides);
  Scenario& scenario = prepared.scenario;
  if (options.steps) scenario.training.steps = *options.steps;
  for (const std::string& file : {options.json, options.trace, options.log}) {
    if (!file.empty()) expect_writable(file);
  }
  progress.stage("lowering");
  Program program = lower(prepared.graph, prepared.plan);
  const std::vector<MemoryPlan> memory = place_buffers(program);
  const TrainingSettings training_settings = settings(prepared);
  Training training(prepared.graph, training_settings);
  host::RunOptions run;
  run.callbacks = training.callbacks();
  run.initial.seed = scenario.training.seed;
  run.steps = scenario.training.steps;
  run.warmup = scenario.training.warmup;
  run.pin = options.pin;
  progress.stage("training");
  const host::RunResult result = host::run_threads(prepared.graph, program, run);
  progress.finish();
  const RunSummary summary = summarize(prepared, program, memory, result);
  if (!options.log.empty()) write_log(options.log, result, training_settings.learning_rate);
  if (!options.trace.empty()) {
    write_file(options.trace, [&](std::ostream& out) { write_trace(out, program, result.timeline); });
  }
  if (!options.json.empty()) {
    write_file(options.json, [&](std::ostream& out) { out << to_json(summary, scenario); });
  }
  if (!is_standard_output(options.json)) print(to_table(summary, scenario));
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("run", "Train as a scenario file says, on this machine's processors");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  add_json(*command, options->json);
  command->add_option("--trace", options->trace, "Write a trace for ui.perfetto.dev to this file");
  command->add_option("--log", options->log,
                      "Write loss, gradient norm and learning rate of every step, as JSON lines");
  command->add_option("--steps", options->steps, "Steps to train, instead of training.steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}));
  command->add_flag("--pin", options->pin, "Keep each rank on a core of its own");
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery run scenarios/host-dp2-pp2.yaml\n"
      "  orrery run scenarios/host-dp2-pp2.yaml --steps 100 --log loss.jsonl\n"
      "  orrery run run.yaml --json - | jq '.loss[-1], .parameter_hash'\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario, model or token file, 4 the plan can't work, 5 a "
      "rank\n"
      "failed, died or hung, or a file can't be written");
  command->callback([options] { run_file(*options); });
}

}  // namespace orrery

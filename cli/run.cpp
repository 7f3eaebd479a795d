// orrery run: the plan of a scenario performed on this machine's processors or GPUs.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <filesystem>
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
#include "executor/device/module.hpp"
#include "executor/kernels/gemm.hpp"
#include "executor/launch/handshake.hpp"
#include "executor/launch/membership.hpp"
#include "executor/train/training.hpp"
#include "model/program_hash.hpp"
#include "model/timeline_json.hpp"
#include "planner/lower.hpp"
#include "planner/place_buffers.hpp"
#include "report/kernel_trace.hpp"
#include "report/run_report.hpp"
#include "report/trace.hpp"
#include "scenarios/show.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, trace, kernel_trace, log, timeline, gemm = "own", backend = "host";
  std::optional<std::int64_t> steps;
  double watchdog_s = 60;
  Overrides overrides;
  bool pin = false, processes = false;
  device::DeviceRunOptions device;
  bool plain_launches = false;
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
  const host::DeviceUse& device = result.device;
  if (!device.name.empty()) summary.backend = "cuda";
  summary.device = {device.name,
                    device.libraries,
                    device.library_bytes,
                    device.used_bytes,
                    device.graph_steps,
                    device.plain_steps,
                    device.registered_buffers,
                    device.capture_failure,
                    {},
                    device.warnings};
  for (const host::KernelUse& kernel : device.kernels) {
    summary.device.kernels.push_back(
        {kernel.label, kernel.instructions, kernel.step_us, kernel.alone_us, kernel.floor_us});
  }
  summary.tokens_per_step = static_cast<double>(prepared.plan.global_batch() * prepared.plan.sequence);
  return summary;
}

// Model, cluster, plan and how it is trained; of the data, which may lie elsewhere on each host, the size.
std::string plan_hash(const Prepared& prepared) {
  const TrainingRequest& training = prepared.scenario.training;
  const LearningRate rate = learning_rate(training);
  std::error_code error;
  const auto data_bytes = std::filesystem::file_size(settings(prepared).data, error);
  return text_hash(normal_form(prepared.scenario, prepared.graph, prepared.plan) +
                   fmt::format("training: {} bytes in tokens of {}, {} steps, seed {}\n"
                               "learning rate: {} to {}, {} steps up, then {}\n"
                               "AdamW: {} {} {} {}, clipped at {}\n",
                               data_bytes, training.token_bytes, training.steps, training.seed, rate.peak,
                               rate.floor, rate.warmup_steps, to_string(rate.decay), training.beta1,
                               training.beta2, training.epsilon, training.weight_decay, training.clip));
}

std::uint64_t short_hash(const std::string& hash) { return std::stoull(hash.substr(0, 16), nullptr, 16); }

// A rank that others have launched: finds them, and makes sure that they do the same.
class Joined {
 public:
  Joined(const launch::Membership& membership, const Program& program, const std::string& plan_hash,
         const std::string& device)
      : membership_(membership) {
    const auto wanted = std::ssize(host::active_ranks(program));
    if (wanted != membership.world_size) {
      fail(ErrorKind::kUsage, "{} has launched {} ranks; the plan has {}: launch as many",
           membership.launched_by, membership.world_size, wanted);
    }
    rendezvous_.emplace(membership);
    launch::Identity identity;
    identity.rank = membership.rank;
    identity.host = launch::host_name();
    identity.device = device;
    identity.plan_hash = short_hash(plan_hash);
    identity.program_hash = short_hash(program_hash(program));
    identity.build = launch::build_name();
    identity.libraries = launch::own_libraries();
    launch::shake_hands(*rendezvous_, identity);
  }

  launch::Rendezvous& rendezvous() { return *rendezvous_; }
  bool reports() const { return membership_.rank == 0; }

 private:
  launch::Membership membership_;
  std::optional<launch::Rendezvous> rendezvous_;
};

void write_kernels(const std::string& file, const Program& program, const host::RunResult& result) {
  KernelTrace trace;
  trace.device = result.device.name;
  for (const host::TracedKernel& kernel : result.device.traced) {
    trace.kernels.push_back(
        {kernel.kernel, kernel.instruction, kernel.stream, kernel.start_ns, kernel.end_ns});
  }
  const RankId rank = host::active_ranks(program).front();
  const Role& role = program.roles[program.role_of[rank.index()].index()];
  write_file(file, [&](std::ostream& out) { write_kernel_trace(out, program, role, trace); });
}

void write_results(const Options& options, const Prepared& prepared, const Program& program,
                   const RunSummary& summary, const host::RunResult& result) {
  if (!options.log.empty()) write_log(options.log, result, learning_rate(prepared.scenario.training));
  if (!options.trace.empty()) {
    write_file(options.trace, [&](std::ostream& out) { write_trace(out, program, result.timeline); });
  }
  if (!options.kernel_trace.empty()) write_kernels(options.kernel_trace, program, result);
  if (!options.timeline.empty()) {
    TimelineRecord record = record_timeline(program, result.timeline);
    record.measured = true;
    record.step_time_s = summary.step_time_s();
    write_file(options.timeline, [&](std::ostream& out) { out << to_json(record); });
  }
  if (!options.json.empty()) {
    write_file(options.json, [&](std::ostream& out) { out << to_json(summary, prepared.scenario); });
  }
  if (!is_standard_output(options.json)) print(to_table(summary, prepared.scenario));
}

struct Performed {
  host::RunResult result;
  std::string ranks;  // "4 threads"; empty: another process reports.
};

void refuse_fp8(const Options& options, const Plan& plan) {
  if (plan.fp8 == Fp8::kNone || options.backend != "host") return;
  fail(ErrorKind::kInfeasible,
       "{}: plan.fp8: {} is for GPUs, and this run is on processors; run it with --backend cuda, or with "
       "plan.fp8: none",
       options.file, to_string(plan.fp8));
}

std::unique_ptr<host::Backend> make_backend(const Options& options) {
  if (options.backend == "host") return host::host_backend(options.processes);
  device::DeviceRunOptions device = options.device;
  device.capture = !options.plain_launches;
  device.trace_kernels = !options.kernel_trace.empty();
  if (device.algorithm_cache.empty()) device.algorithm_cache = device::default_algorithm_cache();
  return device::cuda_backend(device);
}

// A line of progress needs a thread, which forked ranks mustn't have beside them: those go without.
Performed perform(const Options& options, const Prepared& prepared, const Program& program,
                  const TrainingSettings& training, const std::optional<launch::Membership>& membership) {
  const std::unique_ptr<host::Backend> backend = make_backend(options);
  const RankId first = host::active_ranks(program).front();
  std::optional<Progress> progress;
  host::RunOptions run;
  run.callbacks = [&] {
    host::RunCallbacks callbacks = training_callbacks(prepared.graph, training);
    callbacks.gemm = options.gemm == "onednn" ? host::GemmBackend::kOneDnn : host::GemmBackend::kOwn;
    callbacks.ended = [&](RankId rank, std::int64_t step) {
      if (progress && rank == first) progress->stage(fmt::format("step {} of {}", step + 1, training.steps));
    };
    return callbacks;
  };
  run.initial.seed = prepared.scenario.training.seed;
  run.steps = training.steps;
  run.warmup = prepared.scenario.training.warmup;
  run.pin = options.pin;
  run.watchdog = std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * options.watchdog_s));
  if (membership) {
    std::string device = backend->device_name(membership->local_rank);
    if (options.pin) device = fmt::format("core {}", membership->local_rank);
    Joined joined(*membership, program, plan_hash(prepared), device);
    if (joined.reports()) progress.emplace();
    host::RunResult result = backend->run_joined(prepared.graph, program, run, joined.rendezvous());
    if (!joined.reports()) return {};
    return {std::move(result),
            fmt::format("{} processes, launched by {}", membership->world_size, membership->launched_by)};
  }
  if (!options.processes) progress.emplace();
  return {backend->run(prepared.graph, program, run), backend->describe_ranks(program)};
}

// Options that the chosen backend has nothing for are mistakes, not wishes to be passed over.
void check_backend_options(const CLI::App& command, const std::string& backend) {
  if (backend == "cuda") {
    for (const char* const name : {"--pin", "--processes", "--gemm"}) {
      if (command.count(name) == 0) continue;
      fail(ErrorKind::kUsage, "{} belongs to the host backend: leave it out with --backend cuda", name);
    }
    return;
  }
  for (const char* const name :
       {"--deterministic", "--plain-launches", "--algorithm-cache", "--time-kernels", "--trace-kernels"}) {
    if (command.count(name) == 0) continue;
    fail(ErrorKind::kUsage, "{} belongs to the cuda backend: leave it out, or add --backend cuda", name);
  }
}

void run_file(const Options& options) {
  const std::optional<launch::Membership> membership = launch::find_membership(launch::process_environment());
  if (options.gemm == "onednn" && !host::have_onednn()) {
    fail(ErrorKind::kUsage,
         "--gemm onednn: this build has no oneDNN; install it (Debian: libdnnl-dev) and build again");
  }
  Prepared prepared = prepare(options.file, options.overrides);
  refuse_fp8(options, prepared.plan);
  if (options.steps) prepared.scenario.training.steps = *options.steps;
  const bool reports = !membership || membership->rank == 0;
  for (const std::string& file :
       {options.json, options.trace, options.kernel_trace, options.log, options.timeline}) {
    if (!file.empty() && reports) expect_writable(file);
  }
  Program program = lower(prepared.graph, prepared.plan);
  const std::vector<MemoryPlan> memory = place_buffers(program);
  const TrainingSettings training = settings(prepared);
  check_data(training);
  const Performed performed = perform(options, prepared, program, training, membership);
  if (performed.ranks.empty()) return;
  RunSummary summary = summarize(prepared, program, memory, performed.result);
  summary.ranks = performed.ranks;
  summary.plan_hash = plan_hash(prepared);
  write_results(options, prepared, program, summary, performed.result);
}

}  // namespace

void add_run(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("run", "Train as a scenario file says, on this machine's processors or GPUs");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  add_json(*command, options->json);
  command->add_option("--trace", options->trace, "Write a trace for ui.perfetto.dev to this file");
  command->add_option("--trace-kernels", options->kernel_trace,
                      "With cuda: write a trace of every kernel of the last step, for ui.perfetto.dev, to "
                      "this file (needs CUPTI)");
  command->add_option("--timeline", options->timeline,
                      "Write when each instruction ran, for orrery compare, to this file");
  command->add_option("--log", options->log,
                      "Write loss, gradient norm and learning rate of every step, as JSON lines");
  command->add_option("--steps", options->steps, "Steps to train, instead of training.steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{100'000'000}));
  command->add_flag("--processes", options->processes,
                    "With host: ranks are processes that share memory, not threads");
  command
      ->add_option("--watchdog", options->watchdog_s,
                   "Seconds without a sign of life after which a rank ends the run")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  command
      ->add_option(
          "--gemm", options->gemm,
          "With host: who multiplies matrices: own gives the same bits however rows are divided, onednn "
          "doesn't promise it")
      ->check(CLI::IsMember({"own", "onednn"}))
      ->capture_default_str();
  command->add_flag("--pin", options->pin, "With host: keep each rank on a core of its own");
  command
      ->add_option("--backend", options->backend,
                   "What performs the plan: this machine's processors or its GPUs")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command->add_flag("--plain-launches", options->plain_launches,
                    "With cuda: launch kernel by kernel instead of replaying steps as graphs");
  command->add_option(
      "--time-kernels", options->device.time_launches_ms,
      "With cuda: time each kind of kernel alone after the run, for so many milliseconds, and "
      "compare the step with what they need at least");
  command->add_flag(
      "--deterministic", options->device.deterministic,
      "With cuda: sum attention's gradients in a fixed order too, which takes more memory and time");
  command->add_option("--algorithm-cache", options->device.algorithm_cache,
                      "With cuda: folder of the products' timed algorithms, instead of ~/.cache/orrery");
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery run scenarios/host-dp2-pp2.yaml\n"
      "  orrery run scenarios/host-dp2-pp2.yaml --steps 100 --log loss.jsonl\n"
      "  orrery run run.yaml --json - | jq '.loss[-1], .parameter_hash'\n"
      "  mpirun -n 4 orrery run scenarios/host-dp2-pp2.yaml\n"
      "  torchrun --no-python --nproc-per-node 4 orrery run scenarios/host-dp2-pp2.yaml\n"
      "  orrery run scenarios/gpu-125m.yaml --backend cuda --steps 200\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario, model or token file, 4 the plan can't work,\n"
      "5 a rank failed, died or hung, or a file can't be written, 6 ranks that were launched differ");
  command->callback([options, command] {
    check_backend_options(*command, options->backend);
    run_file(*options);
  });
}

}  // namespace orrery

// orrery calibrate: times what plans are made of on this machine, and fits a Profile to it.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "calibration/host_fit.hpp"
#include "calibration/host_fit_report.hpp"
#include "calibration/host_sweep.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "executor/runtime/measure.hpp"
#include "executor/runtime/run.hpp"
#include "scenarios/profile_file.hpp"
#include "topology/host_cores.hpp"

namespace orrery {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string json = "host.profile.json";
  Overrides overrides;
  std::int32_t ranks = 4, rounds = 10, cores = 0;
  bool plans_only = false;
};

// Tokens of any kind: what they are doesn't change what a kernel takes.
host::RunCallbacks any_tokens() {
  host::RunCallbacks callbacks;
  callbacks.inputs = [](std::int64_t, std::int32_t microbatch, TensorId, std::span<std::int64_t> to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::int64_t>(7 * i + static_cast<std::size_t>(microbatch)) % 100;
  };
  callbacks.optimizer = [](std::int64_t) { return host::AdamWSettings(); };
  callbacks.clip_norm = 1;
  return callbacks;
}

std::string machine_name(std::int32_t cores) {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(line.find(':') + 2);
    break;
  }
  const std::time_t now = std::time(nullptr);
  return fmt::format("{}, {} cores, {:%Y-%m-%d}", model, cores, fmt::gmtime(now));
}

class Calibration {
 public:
  explicit Calibration(const Options& options) : options_(options) {
    measured_.cores = options.cores > 0
                          ? options.cores
                          : std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
    measured_.machine = machine_name(measured_.cores);
  }

  HostMeasurements run(const std::vector<ComputeSweep>& sweeps) {
    for (std::size_t s = 0; s < sweeps.size(); ++s) {
      progress_.stage(fmt::format("kernels {} of {}: {}", s + 1, sweeps.size(), sweeps[s].name));
      time_kernels(sweeps[s]);
    }
    progress_.stage("all cores at once");
    time_together(sweeps.front());
    const std::vector<TransferSweep> transfers = transfer_sweeps(std::min(options_.ranks, measured_.cores));
    for (std::size_t t = 0; t < transfers.size(); ++t) {
      progress_.stage(fmt::format("transfers {} of {}", t + 1, transfers.size()));
      time_transfer(transfers[t]);
    }
    progress_.stage("the runtime's own share");
    time_runtime(sweeps.front());
    for (auto& [key, kernel] : kernels_) measured_.kernels.push_back(std::move(kernel));
    progress_.finish();
    return std::move(measured_);
  }

 private:
  void time_kernels(const ComputeSweep& sweep) {
    for (const RankId rank : sweep.ranks) {
      const auto seconds =
          host::measure_computes(sweep.graph, sweep.program, rank, any_tokens(), {options_.rounds, 1});
      const Role& role = sweep.program.roles[sweep.program.role_of[rank.index()].index()];
      for (std::size_t i = 0; i < seconds.size(); ++i) {
        const auto* const compute = std::get_if<Compute>(&role.instructions[i].work);
        if (compute == nullptr) continue;
        const Kernel& kernel = sweep.program.kernels[compute->kernel.index()];
        TimedKernel& timed = timed_kernel(sweep.program.labels[kernel.label.index()], kernel);
        timed.seconds.insert(timed.seconds.end(), seconds[i].begin(), seconds[i].end());
      }
    }
  }

  TimedKernel& timed_kernel(const std::string& label, const Kernel& kernel) {
    const auto key = fmt::format("{} {} {} {} {} {} {} {} {} {}", label, to_string(kernel.kind),
                                 to_string(kernel.dtype), kernel.m, kernel.n, kernel.k, kernel.batch,
                                 kernel.flops, kernel.read_bytes, kernel.written_bytes);
    TimedKernel& timed = kernels_[key];
    timed.label = label;
    timed.kernel = kernel;
    return timed;
  }

  // What all cores together do in the time that one alone needs.
  void time_together(const ComputeSweep& sweep) {
    const auto total = [&](std::int32_t copies) {
      double sum = 0;
      const auto all = host::measure_computes(sweep.graph, sweep.program, sweep.ranks.front(), any_tokens(),
                                              {4 * options_.rounds, copies});
      for (std::vector<double> seconds : all) {
        if (seconds.empty()) continue;
        const auto middle = seconds.begin() + std::ssize(seconds) / 2;
        std::nth_element(seconds.begin(), middle, seconds.end());
        sum += *middle;
      }
      return sum;
    };
    const double alone = total(1);
    measured_.cores_together = std::clamp(measured_.cores * alone / total(measured_.cores), 1.0,
                                          static_cast<double>(measured_.cores));
  }

  static host::RunOptions run_options() {
    host::RunOptions run;
    run.callbacks = any_tokens;
    run.steps = 12;
    run.warmup = 3;
    return run;
  }

  void time_transfer(const TransferSweep& sweep) {
    const host::RunResult result = host::run_threads(sweep.graph, sweep.program, run_options());
    std::map<std::int32_t, std::pair<SimTime, SimTime>> last;  // By instruction: arrival, end.
    for (const Span& span : result.timeline.spans) {
      auto& [arrived, ended] = last[span.first];
      arrived = std::max(arrived, span.start);
      ended = std::max(ended, span.end);
    }
    TimedTransfer& timed = measured_.transfers.emplace_back();
    timed.kind = sweep.kind;
    timed.ranks = sweep.ranks;
    timed.bytes = sweep.bytes;
    for (const auto& [instruction, times] : last) {
      timed.seconds.push_back(std::max(1e-9, (times.second - times.first).seconds()));
    }
  }

  // Between the ends of instructions and the beginnings of the next.
  void time_runtime(const ComputeSweep& sweep) {
    const host::RunResult result = host::run_threads(sweep.graph, sweep.program, run_options());
    SimTime busy;
    for (const Span& span : result.timeline.spans) busy += span.end - span.start;
    const double idle = (result.timeline.step_time - busy).seconds();
    measured_.instruction_s = std::max(0.0, idle / static_cast<double>(result.timeline.spans.size()));
  }

  const Options& options_;
  Progress progress_;
  HostMeasurements measured_;
  std::map<std::string, TimedKernel> kernels_;
};

void calibrate(const Options& options) {
  expect_writable(options.json);
  if (options.plans_only && options.files.empty()) {
    fail(ErrorKind::kUsage,
         "--plans-only: no scenario file says which plans; name one, or leave the flag out");
  }
  std::vector<ComputeSweep> sweeps;
  if (!options.plans_only) sweeps = general_sweeps();
  for (const std::string& file : options.files) {
    const Prepared prepared = prepare(file, options.overrides);
    sweeps.push_back(plan_sweep(prepared.scenario.name, prepared.graph, prepared.plan));
  }
  const HostFit fit = fit_host(Calibration(options).run(sweeps));
  write_file(options.json,
             [&](std::ostream& out) { out << profile_json(fit.profile, make_host_node({}).gpu); });
  if (!is_standard_output(options.json)) print(to_table(fit, options.json));
}

}  // namespace

void add_calibrate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("calibrate", "Time this machine's processors and write a profile of them");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->files, "Scenario files: the kernels of their plans are timed as well");
  command->add_option("--backend", "What to time; so far the processors of this host alone")
      ->check(CLI::IsMember({"host"}))
      ->default_str("host");
  command->add_option("--output,-o", options->json, "Profile file to write")->capture_default_str();
  command->add_option("--ranks", options->ranks, "Largest group of ranks that collectives are timed in")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "How often each kernel is timed")
      ->check(CLI::Range(3, 1000))
      ->capture_default_str();
  command->add_option("--cores", options->cores, "Cores that ranks may use; default: all")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--plans-only", options->plans_only,
                    "Time the kernels of the scenario files' plans alone, without the general sweep");
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery calibrate\n"
      "  orrery calibrate scenarios/host-dp2-pp2.yaml -o mine.profile.json\n"
      "  orrery simulate scenarios/host-dp2-pp2.yaml --set profile.file=mine.profile.json\n\n"
      "Keep the machine otherwise idle. Exit codes: 0 fine, 2 wrong usage, 3 bad input file, 4 a plan that "
      "can't\n"
      "work, 5 failed while running or writing");
  command->callback([options] { calibrate(*options); });
}

}  // namespace orrery

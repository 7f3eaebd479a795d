// orrery placement: which GPU each rank gets, by several policies, side by side.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/engines.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "planner/lower.hpp"
#include "report/placement_launch.hpp"
#include "report/placement_report.hpp"

namespace orrery {
namespace {

struct Options {
  std::string file, json, policy = "all", rank_file, script;
  LaunchNames names;
  Overrides overrides;
};

struct Case {
  PlacementRequest request;
  Cluster cluster;  // With the request's bindings.
};

Case bound(const Scenario& scenario, PlacementPolicy policy, HostBinding nic, HostBinding numa) {
  Case one{scenario.placement, scenario.cluster};
  one.request.policy = policy;
  one.request.nic = nic;
  one.request.numa = numa;
  bind_hosts(one.request, one.cluster.node);
  return one;
}

std::vector<PlacementPolicy> policies(const Options& options, const Scenario& scenario) {
  if (options.policy == "file") return {scenario.placement.policy};
  std::vector<PlacementPolicy> all;
  for (const PlacementPolicy policy : all_placement_policies()) {
    if (options.policy != "all" && options.policy != to_string(policy)) continue;
    const bool listed = policy != PlacementPolicy::kList || !scenario.placement.ranks.empty();
    const bool small = policy != PlacementPolicy::kExact || scenario.cluster.gpu_count() <= 8;
    if (options.policy != "all" || (listed && small)) all.push_back(policy);
  }
  return all;
}

// Each policy as the file binds processes; then the file's own, or graph, with other bindings.
std::vector<Case> cases(const Options& options, const Scenario& scenario) {
  const PlacementRequest& request = scenario.placement;
  std::vector<Case> all;
  for (const PlacementPolicy policy : policies(options, scenario)) {
    all.push_back(bound(scenario, policy, request.nic, request.numa));
  }
  if (options.policy != "all") return all;
  for (const HostBinding binding : {HostBinding::kNearest, HostBinding::kRoundRobin, HostBinding::kRemote}) {
    if (request.nic == binding && request.numa == binding) continue;
    all.push_back(bound(scenario, request.policy, binding, binding));
  }
  return all;
}

PlacementRow assess(const Scenario& scenario, const RankTraffic& traffic, Program& program, const Case& one) {
  PlacementRow row;
  row.policy = one.request.policy;
  row.nic = one.request.nic;
  row.numa = one.request.numa;
  try {
    row.placement = make_placement(traffic, one.cluster, one.request);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInfeasible) throw;
    row.refused = error.what();
    return row;
  }
  const PlacementMachine machine(one.cluster);
  row.cost = placement_cost(traffic, machine, row.placement.device_of);
  row.levels = level_times(traffic, machine, scenario.profile, row.placement.device_of);
  program.device_of = row.placement.device_of;
  JobOptions options;
  options.fold = scenario.fold;
  options.stragglers = scenario.stragglers;
  options.faults = scenario.faults;
  const Job job = make_job(program, one.cluster, scenario.profile, options);
  const EngineRun run = run_engine(scenario, job);
  fmt::print(stderr, "{}", run.remarks);
  if (!run.agree)
    fail(ErrorKind::kDisagreement, "{}: the engines differ, which is a fault of orrery",
         to_string(row.policy));
  row.step_time_s = run.timeline.step_time.seconds();
  row.makespan_s = run.timeline.makespan.seconds();
  row.rank_classes = static_cast<std::int32_t>(std::ssize(job.classes));
  return row;
}

// Of the first case: that of --policy, or the file's.
void write_launch(const Options& options, const Case& one, const PlacementRow& row) {
  if (!options.rank_file.empty()) {
    write_file(options.rank_file,
               [&](std::ostream& out) { out << rank_file(row.placement, one.cluster, options.names); });
  }
  if (!options.script.empty()) {
    write_file(options.script, [&](std::ostream& out) {
      out << launch_script(row.placement, one.cluster, one.request.numa, options.names);
    });
  }
}

void compare_placements(Options options) {
  Progress progress;
  progress.stage("reading");
  const bool launches = !options.rank_file.empty() || !options.script.empty();
  if (launches && options.policy == "all") options.policy = "file";
  const Prepared prepared = prepare(options.file, options.overrides, false);
  const Scenario& scenario = prepared.scenario;
  for (const std::string& file : {options.json, options.rank_file, options.script}) {
    if (!file.empty()) expect_writable(file);
  }
  progress.stage("lowering");
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Program program = lower(prepared.graph, prepared.plan, threads);
  const RankTraffic traffic = rank_traffic(program);
  const std::vector<Case> wanted = cases(options, scenario);
  std::vector<PlacementRow> rows;
  for (const Case& one : wanted) {
    progress.stage(
        fmt::format("{} of {}: {}", rows.size() + 1, wanted.size(), to_string(one.request.policy)));
    rows.push_back(assess(scenario, traffic, program, one));
  }
  progress.finish();
  const auto refused = [](const PlacementRow& row) { return !row.refused.empty(); };
  if (std::ranges::all_of(rows, refused)) {
    fail(ErrorKind::kInfeasible, "{}: {}", options.file, rows.front().refused);
  }
  if (!options.json.empty()) {
    write_file(options.json, [&](std::ostream& out) { out << to_json(rows, scenario); });
  }
  if (launches) write_launch(options, wanted.front(), rows.front());
  const bool taken = is_standard_output(options.json) || is_standard_output(options.rank_file) ||
                     is_standard_output(options.script);
  if (!taken) print(to_table(rows, scenario));
}

}  // namespace

void add_placement(CLI::App& app) {
  CLI::App* command = app.add_subcommand("placement", "Compare which GPU, NIC and CPU each rank gets");
  auto options = std::make_shared<Options>();
  command->add_option("FILE", options->file, "Scenario file (YAML)")->required();
  std::vector<std::string> words = {"all", "file"};
  for (const PlacementPolicy policy : all_placement_policies()) words.emplace_back(to_string(policy));
  command->add_option("--policy", options->policy, "The one to look at; file: that of the file")
      ->check(CLI::IsMember(words))
      ->capture_default_str();
  add_json(*command, options->json, "the figures and every rank's GPU");
  command->add_option("--rankfile", options->rank_file,
                      "Write the placement of --policy, or the file's, as Open MPI's rank file");
  command->add_option("--script", options->script,
                      "Write it as a shell script that binds each process and starts the training command");
  command->add_option("--host", options->names.hosts, "Name of a node, in order, for both; may be repeated")
      ->expected(1)
      ->take_all();
  command->add_option("--nic-prefix", options->names.nic_prefix, "Of the NICs' names in the script")
      ->capture_default_str();
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery placement scenarios/placement-192gpu.yaml\n"
      "  orrery placement run.yaml --policy graph --set plan.placement.max_pcie_hops=2 --json -\n"
      "  orrery placement run.yaml --policy graph --rankfile ranks.txt --script bind.sh\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 bad scenario or model file, 4 no placement is possible, 5 "
      "failed\n"
      "while running or writing, 6 the engines of engine: both disagree");
  command->callback([options] { compare_placements(*options); });
}

}  // namespace orrery

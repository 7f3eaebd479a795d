// orrery collective: a sweep of sizes over a machine, as nccl-tests would print it.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/prepare.hpp"
#include "cli/progress.hpp"
#include "cli/topology_load.hpp"
#include "report/bucket_study.hpp"
#include "report/collective_report.hpp"
#include "report/topology_report.hpp"
#include "topology/import/host_node.hpp"

namespace orrery {
namespace {

constexpr std::array kFabrics{std::pair{"rail-optimised", FabricKind::kRailOptimised},
                              std::pair{"fat-tree", FabricKind::kFatTree},
                              std::pair{"rail-only", FabricKind::kRailOnly}};
constexpr double kHopLatency = 300e-9;  // As in scenario files.
// What a scenario says itself.
constexpr std::array kOfMachines{"--nodes", "--fabric", "--kind",     "--algorithm", "--begin",
                                 "--end",   "--factor", "--channels", "--chunk"};

template <class List>
std::vector<std::string> words(const List& list) {
  std::vector<std::string> all;
  for (const auto& one : list) all.emplace_back(to_string(one));
  return all;
}

template <class List>
auto named(const List& list, const std::string& word) {
  for (const auto& one : list)
    if (to_string(one) == word) return one;
  return list.front();
}

struct Options {
  TopologyRequest request;
  std::int32_t nodes = 1;
  std::string fabric = "rail-optimised", kind = "all-reduce";
  std::vector<std::string> algorithms = {"auto"};
  std::string begin = "1MiB", end = "1GiB", json;
  std::int32_t factor = 4, channels = 0;
  std::string chunk;
  bool both = false;
  Overrides overrides;
};

// What is asked, however it was asked.
struct Question {
  Cluster cluster;
  Profile profile;
  CollectiveRequest request;
};

std::int64_t bytes_of(const std::string& option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes < 1) fail(ErrorKind::kUsage, "{} {}: expected a size such as 64MiB", option, text);
  return *bytes;
}

Cluster cluster_of(const Options& options) {
  const std::vector<TopologyFile> files = load_topologies(options.request);
  if (files.size() != 1 || files.front().hosts.empty())
    fail(ErrorKind::kInput, "{}: expected one machine: a topology file or a node of the catalogue",
         options.request.files.front());
  const TopologyFile& file = files.front();
  Cluster cluster;
  // The catalogue knows more of its nodes than a host says.
  if (const auto node = file.kind == TopologyFileKind::kMachine ? catalogue_node(file.name) : std::nullopt) {
    cluster.node = *node;
  } else {
    std::vector<ImportNote> notes = file.notes;
    cluster.node = node_of(file.hosts.front(), gpu_type_of(file.hosts.front(), notes), notes);
    fmt::print(stderr, "{}", to_table(notes, file.name));
  }
  cluster.nodes = options.nodes;
  cluster.name = fmt::format("{} x {}", options.nodes, cluster.node.name);
  for (const auto& [name, kind] : kFabrics)
    if (options.fabric == name) cluster.fabric.kind = kind;
  cluster.fabric.hop_latency_s = kHopLatency;
  return cluster;
}

Question question_of(const Options& options) {
  Question question;
  question.cluster = cluster_of(options);
  question.profile = default_profile(question.cluster.node.gpu);
  CollectiveRequest& request = question.request;
  request.kind = named(kSweptCollectives, options.kind);
  request.algorithms.clear();
  for (const std::string& word : options.algorithms)
    request.algorithms.push_back(word == "auto" ? std::nullopt
                                                : std::optional(named(kCollectiveAlgorithms, word)));
  request.begin_bytes = bytes_of("--begin", options.begin);
  request.end_bytes = bytes_of("--end", options.end);
  if (request.begin_bytes > request.end_bytes)
    fail(ErrorKind::kUsage, "--begin {} is beyond --end {}", options.begin, options.end);
  request.factor = options.factor;
  request.channels = options.channels;
  if (!options.chunk.empty()) request.chunk_bytes = bytes_of("--chunk", options.chunk);
  return question;
}

std::vector<CollectiveSeries> sweep(const Question& question, bool simgrid) {
  const CollectiveRequest& request = question.request;
  std::vector<CollectiveSeries> all;
  for (const std::optional<CollectiveAlgorithm>& algorithm : request.algorithms) {
    CollectiveSweep one;
    one.kind = request.kind;
    one.algorithm = algorithm;
    for (std::int64_t bytes = request.begin_bytes; bytes <= request.end_bytes; bytes *= request.factor)
      one.sizes.push_back(bytes);
    one.channels = request.channels;
    one.chunk_bytes = request.chunk_bytes;
    one.simgrid = simgrid;
    all.push_back({algorithm ? std::string(to_string(*algorithm)) : "auto",
                   sweep_collective(one, question.cluster, question.profile)});
  }
  return all;
}

// As the engines' own tests hold them.
void check_engines(const std::vector<CollectiveSeries>& all) {
  constexpr double kTolerance = 1e-6;
  for (const CollectiveSeries& one : all)
    for (const CollectiveRow& row : one.rows)
      if (row.simgrid_time &&
          std::abs(row.simgrid_time->seconds() - row.time.seconds()) > kTolerance * row.time.seconds())
        fail(ErrorKind::kDisagreement, "{} bytes: the engines take {} us and {} us", row.bytes,
             row.time.seconds() * 1e6, row.simgrid_time->seconds() * 1e6);
}

std::string with_buckets(const std::string& json, std::span<const BucketRow> buckets) {
  if (buckets.empty()) return json;
  auto object = nlohmann::ordered_json::parse(json);
  object["buckets"] = nlohmann::ordered_json::parse(to_json(buckets));
  return object.dump(2) + "\n";
}

void tell(const Options& options, const Question& question, std::span<const BucketRow> buckets) {
  const std::vector<CollectiveSeries> all = sweep(question, options.both);
  const CollectiveKind kind = question.request.kind;
  if (!options.json.empty())
    write_file(options.json, [&](std::ostream& out) {
      out << with_buckets(to_json(all, kind, question.cluster), buckets);
    });
  if (!is_standard_output(options.json)) {
    print(to_table(all, kind, question.cluster));
    if (!buckets.empty()) print("\n" + to_table(buckets));
  }
  check_engines(all);
}

void ask_scenario(const Options& options) {
  Prepared prepared = prepare(options.request.files.front(), options.overrides);
  const Scenario& scenario = prepared.scenario;
  JobOptions job;
  job.fold = scenario.fold;
  job.stragglers = scenario.stragglers;
  const std::vector<BucketRow> buckets =
      study_buckets(prepared.graph, prepared.plan, scenario.cluster, scenario.profile, scenario.buckets, job);
  tell(options, {scenario.cluster, scenario.profile, scenario.collective}, buckets);
}

void run(const Options& options, const CLI::App& command) {
  Progress progress;
  progress.stage("simulating");
  if (!options.json.empty()) expect_writable(options.json);
  const std::string& file = options.request.files.front();
  if (options.request.files.size() == 1 && is_scenario_file(file)) {
    for (const char* option : kOfMachines)
      if (command.count(option) > 0)
        fail(ErrorKind::kUsage, "{}: {} says that itself; use --set, as in --set collective.kind=all-gather",
             option, file);
    ask_scenario(options);
  } else {
    if (!options.overrides.empty())
      fail(ErrorKind::kUsage, "--set replaces values of a scenario; {} isn't one", file);
    tell(options, question_of(options), {});
  }
  progress.finish();
}

}  // namespace

void add_collective(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "collective", "Time one collective over a sweep of sizes, chunk by chunk on the links");
  const auto options = std::make_shared<Options>();
  add_topology_options(*command, options->request);
  command->add_option("--nodes", options->nodes, "Nodes of this kind")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  std::vector<std::string> fabrics;
  for (const auto& [name, kind] : kFabrics) fabrics.emplace_back(name);
  command->add_option("--fabric", options->fabric, "The network between nodes")
      ->check(CLI::IsMember(fabrics))
      ->capture_default_str();
  command->add_option("--kind", options->kind, "The collective")
      ->check(CLI::IsMember(words(kSweptCollectives)))
      ->capture_default_str();
  std::vector<std::string> algorithms = words(kCollectiveAlgorithms);
  algorithms.insert(algorithms.begin(), "auto");
  command
      ->add_option("--algorithm", options->algorithms,
                   "Several with commas between them; auto: what NCCL chooses at each size")
      ->delimiter(',')
      ->check(CLI::IsMember(algorithms))
      ->capture_default_str();
  command->add_option("--begin", options->begin, "Smallest size")->capture_default_str();
  command->add_option("--end", options->end, "Largest size")->capture_default_str();
  command->add_option("--factor", options->factor, "From size to size")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command->add_option("--channels", options->channels, "Channels; 0: as many as NCCL uses")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  command->add_option("--chunk", options->chunk, "Bytes that are sent at a time; default: the protocol's");
  command->add_flag("--both-engines", options->both, "With SimGrid too; exit code 6 when they differ");
  add_json(*command, options->json, "the rows");
  add_overrides(*command, options->overrides);
  command->footer(
      "Examples:\n"
      "  orrery collective dgx-h100 --nodes 2\n"
      "  orrery collective dgx-a100 --nodes 8 --algorithm ring,chain,ring-chain --begin 64MiB\n"
      "  orrery collective topology.xml --kind all-to-all --both-engines\n"
      "  orrery collective scenarios/collective-ring-chain.yaml\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 a machine, scenario or algorithm that can't be used, 4 a "
      "scenario's\n"
      "plan can't work, 6 the engines disagree");
  command->callback([options, command] { run(*options, *command); });
}

}  // namespace orrery

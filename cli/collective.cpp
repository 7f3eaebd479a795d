// orrery collective: a sweep of sizes over a machine, as nccl-tests would print it.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"
#include "cli/topology_load.hpp"
#include "planner/collective_sweep.hpp"
#include "report/topology_report.hpp"
#include "topology/host_node.hpp"

namespace orrery {
namespace {

constexpr std::array kKinds{CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                            CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                            CollectiveKind::kBroadcast};
constexpr std::array kAlgorithms{
    CollectiveAlgorithm::kRing,     CollectiveAlgorithm::kTree,      CollectiveAlgorithm::kHalvingDoubling,
    CollectiveAlgorithm::kChain,    CollectiveAlgorithm::kRingChain, CollectiveAlgorithm::kHierarchical,
    CollectiveAlgorithm::kNvls,     CollectiveAlgorithm::kNvlsTree,  CollectiveAlgorithm::kPat,
    CollectiveAlgorithm::kPairwise, CollectiveAlgorithm::kPxn};
constexpr std::array kFabrics{std::pair{"rail-optimised", FabricKind::kRailOptimised},
                              std::pair{"fat-tree", FabricKind::kFatTree},
                              std::pair{"rail-only", FabricKind::kRailOnly}};
constexpr double kHopLatency = 300e-9;  // As in scenario files.

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
  std::string fabric = "rail-optimised", kind = "all-reduce", algorithm = "auto";
  std::string begin = "1MiB", end = "1GiB", json;
  std::int32_t factor = 4, channels = 0;
  std::string chunk;
  bool both = false;
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

CollectiveSweep sweep_of(const Options& options) {
  CollectiveSweep sweep;
  sweep.kind = named(kKinds, options.kind);
  if (options.algorithm != "auto") sweep.algorithm = named(kAlgorithms, options.algorithm);
  const std::int64_t end = bytes_of("--end", options.end);
  for (std::int64_t bytes = bytes_of("--begin", options.begin); bytes <= end; bytes *= options.factor)
    sweep.sizes.push_back(bytes);
  if (sweep.sizes.empty())
    fail(ErrorKind::kUsage, "--begin {} is beyond --end {}", options.begin, options.end);
  sweep.channels = options.channels;
  if (!options.chunk.empty()) sweep.chunk_bytes = bytes_of("--chunk", options.chunk);
  sweep.simgrid = options.both;
  return sweep;
}

std::string table(const std::vector<CollectiveRow>& rows, const Cluster& cluster, const Options& options) {
  std::string text = fmt::format("{} over {} GPUs ({})\n", options.kind, cluster.gpu_count(), cluster.name);
  text +=
      fmt::format("{:>14} {:<16} {:<7} {:>8} {:>12} {:>8} {:>8} {:>12}{}\n", "bytes", "algorithm", "proto",
                  "channels", "time us", "algbw", "busbw", "formula us", options.both ? "   simgrid us" : "");
  for (const CollectiveRow& row : rows) {
    text += fmt::format("{:>14} {:<16} {:<7} {:>8} {:>12.2f} {:>8.2f} {:>8.2f} {:>12.2f}", row.bytes,
                        to_string(row.algorithm), nccl::to_string(row.protocol), row.channels,
                        row.time.seconds() * 1e6, row.algbw_bytes_per_s * 1e-9, row.busbw_bytes_per_s * 1e-9,
                        row.formula.seconds() * 1e6);
    if (row.simgrid_time) text += fmt::format(" {:>12.2f}", row.simgrid_time->seconds() * 1e6);
    text += "\n";
  }
  return text + "algbw and busbw in GB/s, as nccl-tests has them\n";
}

std::string json(const std::vector<CollectiveRow>& rows, const Cluster& cluster, const Options& options) {
  nlohmann::ordered_json object{
      {"collective", options.kind}, {"gpus", cluster.gpu_count()}, {"cluster", cluster.name}};
  object["rows"] = nlohmann::ordered_json::array();
  for (const CollectiveRow& row : rows) {
    nlohmann::ordered_json entry{{"bytes", row.bytes},
                                 {"algorithm", to_string(row.algorithm)},
                                 {"protocol", nccl::to_string(row.protocol)},
                                 {"channels", row.channels},
                                 {"chunk_bytes", row.chunk_bytes},
                                 {"time_s", row.time.seconds()},
                                 {"algbw_bytes_per_s", row.algbw_bytes_per_s},
                                 {"busbw_bytes_per_s", row.busbw_bytes_per_s},
                                 {"formula_s", row.formula.seconds()}};
    if (row.simgrid_time) entry["simgrid_s"] = row.simgrid_time->seconds();
    object["rows"].push_back(std::move(entry));
  }
  return object.dump(2) + "\n";
}

// As the engines' own tests hold them.
void check_engines(const std::vector<CollectiveRow>& rows) {
  constexpr double kTolerance = 1e-6;
  for (const CollectiveRow& row : rows)
    if (row.simgrid_time &&
        std::abs(row.simgrid_time->seconds() - row.time.seconds()) > kTolerance * row.time.seconds())
      fail(ErrorKind::kDisagreement, "{} bytes: the engines take {} us and {} us", row.bytes,
           row.time.seconds() * 1e6, row.simgrid_time->seconds() * 1e6);
}

void run(const Options& options) {
  Progress progress;
  progress.stage("simulating");
  const Cluster cluster = cluster_of(options);
  const std::vector<CollectiveRow> rows =
      sweep_collective(sweep_of(options), cluster, default_profile(cluster.node.gpu));
  progress.finish();
  if (!options.json.empty())
    write_file(options.json, [&](std::ostream& out) { out << json(rows, cluster, options); });
  if (!is_standard_output(options.json)) print(table(rows, cluster, options));
  check_engines(rows);
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
      ->check(CLI::IsMember(words(kKinds)))
      ->capture_default_str();
  std::vector<std::string> algorithms = words(kAlgorithms);
  algorithms.insert(algorithms.begin(), "auto");
  command->add_option("--algorithm", options->algorithm, "auto: what NCCL chooses at each size")
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
  command->footer(
      "Examples:\n"
      "  orrery collective dgx-h100 --nodes 2\n"
      "  orrery collective dgx-h100 --nodes 128 --algorithm ring --channels 1 --begin 1GiB\n"
      "  orrery collective topology.xml --kind all-to-all --both-engines\n\n"
      "Exit codes: 0 fine, 2 wrong usage, 3 a machine or algorithm that can't be used, 6 the engines "
      "disagree");
  command->callback([options] { run(*options); });
}

}  // namespace orrery

// orrery topo: what files say of a machine's topology, in one form.

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cli/arguments.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/topology_load.hpp"
#include "report/host_json.hpp"
#include "report/ring_report.hpp"
#include "report/topology_report.hpp"
#include "topology/import/host_dot.hpp"
#include "topology/import/host_node.hpp"
#include "topology/import/nccl_graph_xml.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/platform.hpp"
#include "topology/nccl/nccl_search.hpp"

namespace orrery {
namespace {

constexpr const char* kExitCodes =
    "\n\nExit codes: 0 fine, 2 wrong usage, 3 a file that can't be read as a topology";

struct Options {
  TopologyRequest request;
  std::string json, output = "-", to = "nccl-topo", graph;
  std::vector<std::int32_t> order;
  std::string bytes;
  Overrides overrides;
  bool several_nodes = false;
};

// Remarks go to standard error, so that what is asked for can be piped on.
void print_notes(const TopologyFile& file) { fmt::print(stderr, "{}", to_table(file.notes, file.name)); }

void show(const Options& options) {
  for (const TopologyFile& file : load_topologies(options.request)) {
    print_notes(file);
    print(to_table(file));
  }
}

// Every file by itself, so that one bad one doesn't hide the others.
void check(const Options& options) {
  std::size_t bad = 0;
  for (const std::string& name : options.request.files) {
    TopologyRequest one = options.request;
    one.files = {name};
    try {
      const TopologyFile file = load_topologies(one).front();
      print(fmt::format("{}: {}, {} host{}, {} note{}\n", name, to_string(file.kind), file.hosts.size(),
                        file.hosts.size() == 1 ? "" : "s", file.notes.size(),
                        file.notes.size() == 1 ? "" : "s"));
      print(to_table(file.notes, name));
    } catch (const Error& error) {
      ++bad;
      print(fmt::format("{}\n", error.what()));
    }
  }
  if (bad > 0)
    fail(ErrorKind::kInput, "{} of {} files can't be read; see above", bad, options.request.files.size());
}

const Host& only_host(const std::vector<TopologyFile>& files) {
  const Host* found = nullptr;
  for (const TopologyFile& file : files)
    for (const Host& host : file.hosts) {
      if (found != nullptr)
        fail(ErrorKind::kInput, "{} and {} are two machines; name one", found->source, host.source);
      found = &host;
    }
  if (found == nullptr)
    fail(ErrorKind::kInput,
         "{}: no machine in it; name a matrix of nvidia-smi topo -m, a topology file, or a log with "
         "NCCL_DEBUG_SUBSYS=GRAPH",
         files.front().name);
  return *found;
}

NodeType node_of_host(const Host& host) {
  std::vector<ImportNote> notes;
  NodeType node = node_of(host, gpu_type_of(host, notes), notes);
  fmt::print(stderr, "{}", to_table(notes, host.source));
  return node;
}

std::vector<nccl::Graph> searched(const Host& host, bool several_nodes) {
  nccl::SystemOptions options;
  options.other_nodes = several_nodes;
  const nccl::Graphs graphs = nccl::search_graphs(nccl::make_system(host, options));
  return {graphs.ring, graphs.tree, graphs.collnet_direct, graphs.collnet_chain, graphs.nvls};
}

std::string converted(const Options& options, const std::vector<TopologyFile>& files) {
  if (options.to == "nccl-graph") {
    for (const TopologyFile& file : files)
      if (!file.graphs.empty()) return write_nccl_graphs(file.graphs);
    return write_nccl_graphs(searched(only_host(files), options.several_nodes));
  }
  const Host& host = only_host(files);
  if (options.to == "dot") return write_graphviz(host);
  if (options.to == "simgrid") {
    Cluster one;
    one.node = node_of_host(host);
    one.name = one.node.name;
    return write_simgrid_platform(one);
  }
  if (options.to == "json") return host_json({{host}, {}});
  NcclTopologyWriteOptions xml;
  xml.prune = true;
  const NcclTopologyText text = write_nccl_topology(host, xml);
  fmt::print(stderr, "{}", to_table(text.notes, host.source));
  return text.text;
}

void convert(const Options& options) {
  const std::vector<TopologyFile> files = load_topologies(options.request);
  for (const TopologyFile& file : files) print_notes(file);
  const std::string text = converted(options, files);
  write_file(options.output, [&](std::ostream& out) { out << text; });
}

void diff(const Options& options) {
  if (options.request.files.size() != 2)
    fail(ErrorKind::kUsage, "orrery topo diff compares two files, not {}", options.request.files.size());
  const std::vector<TopologyFile> files = load_topologies(options.request);
  for (const TopologyFile& file : files) print_notes(file);
  if (!files[0].graphs.empty() && !files[1].graphs.empty()) {
    print(to_table(files[0]) + to_table(files[1]));
    if (files[0].graphs != files[1].graphs)
      fail(ErrorKind::kDisagreement, "{} and {} have different graphs", files[0].name, files[1].name);
    return;
  }
  const std::string text = difference(only_host({files[0]}), only_host({files[1]}));
  print(text.empty() ? "no difference\n" : text);
  if (!text.empty()) fail(ErrorKind::kDisagreement, "{} and {} differ", files[0].name, files[1].name);
}

// Rings over GPUs of one node, and of what size the all-reduce is.
struct RingQuestion {
  NodeType node;
  std::vector<RingOrder> given;
  std::string source = "index order";
  std::int64_t bytes = std::int64_t{1} << 30;
};

RingQuestion question_of_files(const Options& options) {
  RingQuestion question;
  const std::vector<TopologyFile> files = load_topologies(options.request);
  for (const TopologyFile& file : files) print_notes(file);
  // Machines come from the first file that has one, orders from the command line or a file that has rings.
  std::vector<TopologyFile> machines;
  for (const TopologyFile& file : files) {
    if (!file.hosts.empty() && machines.empty()) machines.push_back(file);
    if (question.given.empty() && !(question.given = rings_of(file)).empty()) question.source = file.name;
  }
  question.node = node_of_host(only_host(machines.empty() ? files : machines));
  return question;
}

RingQuestion question_of_scenario(const Options& options) {
  const Scenario scenario = load_scenario(options.request.files.front(), options.overrides);
  RingQuestion question;
  question.node = scenario.cluster.node;
  question.bytes = scenario.rings.bytes;
  for (const std::string& note : scenario.notes) fmt::print(stderr, "assumed: {}\n", note);
  if (!scenario.rings.order.empty()) {
    question.given = {scenario.rings.order};
    question.source = "rings.order";
  } else if (!scenario.rings.from.empty()) {
    TopologyRequest request;
    request.files = {scenario.rings.from.string()};
    const TopologyFile file = load_topologies(request).front();
    question.given = rings_of(file);
    question.source = file.name;
    if (question.given.empty())
      fail(ErrorKind::kInput, "{}: has no rings over the GPUs of one host", file.name);
  }
  return question;
}

void rings(const Options& options) {
  const bool scenario = options.request.files.size() == 1 && is_scenario_file(options.request.files.front());
  if (!scenario && !options.overrides.empty())
    fail(ErrorKind::kUsage, "--set replaces values of a scenario; {} isn't one",
         options.request.files.front());
  RingQuestion question = scenario ? question_of_scenario(options) : question_of_files(options);
  if (!options.bytes.empty()) {
    const auto bytes = parse_bytes(options.bytes);
    if (!bytes || *bytes < 1)
      fail(ErrorKind::kUsage, "--bytes {}: expected a size such as 1GiB", options.bytes);
    question.bytes = *bytes;
  }
  if (!options.order.empty()) {
    question.given = {options.order};
    question.source = "--order";
  }
  if (question.given.empty()) {
    question.given.emplace_back();
    for (std::int32_t gpu = 0; gpu < question.node.gpus; ++gpu) question.given.back().push_back(gpu);
  }
  const RingReport report = ring_report(question.node, question.given, question.source);
  if (!options.graph.empty())
    write_file(options.graph, [&](std::ostream& out) { out << nccl_graph_file(report); });
  if (!options.json.empty())
    write_file(options.json, [&](std::ostream& out) { out << to_json(report, question.bytes); });
  if (!is_standard_output(options.json) && !is_standard_output(options.graph))
    print(to_table(report, question.bytes));
}

CLI::App* action(CLI::App& topo, const char* name, const char* what, const char* examples,
                 const std::shared_ptr<Options>& options, void (*run)(const Options&)) {
  CLI::App* command = topo.add_subcommand(name, what);
  add_topology_options(*command, options->request);
  command->footer(std::string("Examples:\n") + examples + kExitCodes);
  command->callback([options, run] { run(*options); });
  return command;
}

}  // namespace

void add_topo(CLI::App& app) {
  CLI::App* topo = app.add_subcommand("topo", "Show, check, convert and compare topologies of machines");
  topo->require_subcommand(1);
  const auto options = std::make_shared<Options>();
  action(*topo, "show", "Devices, paths between all of them, and what NCCL makes of them",
         "  nvidia-smi topo -m | orrery topo show -\n"
         "  orrery topo show topology.xml\n"
         "  orrery topo show here",
         options, show);
  action(*topo, "check", "Read files and say all that is odd, repaired, assumed or missing",
         "  orrery topo check host*/topology.xml\n"
         "  orrery topo check job.log matrix.txt",
         options, check);
  CLI::App* command =
      action(*topo, "convert", "Write a machine in another form",
             "  orrery topo convert matrix.txt --gpu h100-sxm --nic 400Gb/s --output topology.xml\n"
             "  orrery topo convert topology.xml --to nccl-graph\n"
             "  orrery topo convert dgx-h100 --to dot | dot -Tsvg > node.svg",
             options, convert);
  command->add_option("--to", options->to, "Form of the output")
      ->check(CLI::IsMember({"nccl-topo", "nccl-graph", "simgrid", "dot", "json"}))
      ->capture_default_str();
  command->add_option("--output", options->output, "File to write; - is standard output")
      ->capture_default_str();
  command->add_flag("--several-nodes", options->several_nodes, "Graphs for a job over several such machines");
  action(*topo, "diff",
         "What differs between two machines or two graph files; exit code 6 when something does",
         "  orrery topo diff node01.xml node02.xml\n"
         "  orrery topo diff topology.xml dgx-h100",
         options, diff);
  command = action(*topo, "rings", "What each edge of a ring goes over and gives, and the best order",
                   "  orrery topo rings matrix.txt job.log\n"
                   "  orrery topo rings scenarios/rings-wrong-order.yaml\n"
                   "  orrery topo rings dgx-v100-mesh --order 0,1,2,3,4,5,6,7 --bytes 2GB\n"
                   "  orrery topo rings topology.xml --graph graph.xml",
                   options, rings);
  command->add_option("--order", options->order, "GPUs in the order of the ring")->delimiter(',');
  command->add_option("--bytes", options->bytes, "Size of the all-reduce that is timed; default: 1GiB");
  add_overrides(*command, options->overrides);
  command->add_option("--graph", options->graph,
                      "Write a graph file with the best rings for NCCL_GRAPH_FILE");
  command->add_option("--json", options->json,
                      "Write the figures as JSON to this file; - is standard output");
}

}  // namespace orrery

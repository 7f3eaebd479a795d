#include "report/topology_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/link_rates.hpp"
#include "topology/nccl/nccl_search.hpp"

namespace orrery {
namespace {

std::string_view word(ImportNote::Kind kind) {
  switch (kind) {
    case ImportNote::Kind::kRepaired: return "repaired";
    case ImportNote::Kind::kAssumed: return "assumed";
    case ImportNote::Kind::kMissing: return "missing";
    case ImportNote::Kind::kSuspect: return "suspect";
  }
  return "";
}

const PciDevice* pci(const Host& host, std::int32_t index) {
  return index < 0 ? nullptr : &host.pci[static_cast<std::size_t>(index)];
}

std::string numa(const Host& host, std::int32_t cpu) {
  const std::int32_t node = host.cpus[static_cast<std::size_t>(cpu)].numa;
  return node < 0 ? "-" : fmt::format("{}", node);
}

// "18 to the switch", "4 to 0000:07:00.0".
std::string nvlinks(const HostGpu& gpu) {
  std::map<std::string, std::int32_t> counts;
  for (const HostNvLink& link : gpu.nvlinks)
    counts[link.target_class == kNvSwitchClass ? "the switch" : link.target] += link.count;
  std::vector<std::string> words;
  for (const auto& [target, count] : counts) words.push_back(fmt::format("{} to {}", count, target));
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

std::string host_table(const Host& host) {
  std::string text = fmt::format(
      "{}: {} GPU{}, {} network port{}, {} NUMA node{}\n", host.name.empty() ? host.source : host.name,
      host.gpus.size(), host.gpus.size() == 1 ? "" : "s", host.nics.size(), host.nics.size() == 1 ? "" : "s",
      host.cpus.size(), host.cpus.size() == 1 ? "" : "s");
  for (const HostGpu& gpu : host.gpus) {
    const PciDevice* const at = pci(host, gpu.pci);
    text += fmt::format("  GPU {:<3} {:<14} NUMA {:<3} PCIe {:>5.4g} GB/s  NVLinks {}{}\n", gpu.index,
                        at == nullptr ? "-" : at->bus_id, at == nullptr ? "-" : numa(host, at->cpu),
                        at == nullptr ? 0 : pcie_bytes_per_s(*at) * 1e-9, nvlinks(gpu),
                        gpu.model.empty() ? "" : "  " + gpu.model);
  }
  for (const HostNic& nic : host.nics)
    text += fmt::format(
        "  NIC {:<3} {:<14} NUMA {:<3} {}\n", nic.index, nic.name, numa(host, nic.cpu),
        nic.bytes_per_s > 0 ? fmt::format("{:g} Gb/s", nic.bytes_per_s * 8e-9) : "rate not known");
  return text;
}

std::string path_cell(const nccl::SystemPath& path) {
  return path.type == nccl::PathClass::kLoc || path.type == nccl::PathClass::kDis
             ? std::string(nccl::to_string(path.type))
             : fmt::format("{}/{:.4g}", nccl::to_string(path.type), path.gb_per_s);
}

// From every GPU to every GPU and port: class and GB/s.
std::string path_table(const nccl::System& system) {
  const auto& gpus = system.all(nccl::NodeKind::kGpu);
  const auto& ports = system.all(nccl::NodeKind::kNet);
  std::string text = "  paths (class/GB/s)\n        ";
  for (std::size_t g = 0; g < gpus.size(); ++g)
    text += fmt::format(" {:>9}", fmt::format("GPU {}", system.gpu(static_cast<std::int32_t>(g)).device));
  for (std::size_t n = 0; n < ports.size(); ++n)
    text +=
        fmt::format(" {:>9}", fmt::format("NIC {}", system.nodes[static_cast<std::size_t>(ports[n])].device));
  text += "\n";
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    text += fmt::format("  GPU {:<2}", system.gpu(static_cast<std::int32_t>(g)).device);
    for (const auto* const list : {&gpus, &ports})
      for (const std::int32_t to : *list) text += fmt::format(" {:>9}", path_cell(system.path(gpus[g], to)));
    text += "\n";
  }
  return text;
}

std::string graph_line(const char* name, const nccl::Graph& graph) {
  if (graph.channels.empty()) return "";
  return fmt::format("  {:<12} {} channel{} of {:g} GB/s inside, {:g} between nodes, {} / {}\n", name,
                     graph.channels.size(), graph.channels.size() == 1 ? "" : "s", graph.node_gb_per_s,
                     graph.network_gb_per_s, nccl::to_string(graph.node_path),
                     nccl::to_string(graph.network_path));
}

std::string nccl_table(const Host& host) {
  std::string text;
  for (const bool several : {false, true}) {
    if (several && host.nics.empty()) continue;
    nccl::SystemOptions options;
    options.other_nodes = several;
    try {
      const nccl::System system = nccl::make_system(host, options);
      if (!several) text += path_table(system);
      const nccl::Graphs graphs = nccl::search_graphs(system);
      text += several ? "  NCCL between such nodes\n" : "  NCCL inside one node\n";
      text += graph_line("  ring", graphs.ring) + graph_line("  tree", graphs.tree) +
              graph_line("  NVLS", graphs.nvls);
    } catch (const Error& error) {
      return text + fmt::format("  NCCL's search: {}\n", error.what());
    }
  }
  return text;
}

std::string graphs_table(const std::vector<nccl::Graph>& graphs) {
  static constexpr const char* kNames[]{"ring", "tree", "collnet chain", "NVLS", "collnet direct"};
  std::string text;
  for (const nccl::Graph& graph : graphs) {
    text += graph_line(kNames[static_cast<std::size_t>(graph.kind)], graph);
    std::set<std::string> seen;
    for (const nccl::GraphChannel& channel : graph.channels) {
      const std::string order = fmt::format("{}", fmt::join(channel.gpus, " "));
      if (seen.insert(order).second) text += fmt::format("    {}\n", order);
    }
  }
  return text;
}

std::string log_table(const NcclLog& log) {
  std::string text =
      fmt::format("NCCL {}{}, {} communicator{}\n", log.version.empty() ? "of unknown version" : log.version,
                  log.rccl ? " (RCCL)" : "", log.comms.size(), log.comms.size() == 1 ? "" : "s");
  for (const LogComm& comm : log.comms) {
    text += fmt::format("  {} ranks on {} nodes", comm.rank_count, comm.node_count);
    if (comm.channel_counts)
      text +=
          fmt::format(", {} channels, {} for NVLS, {} for send and receive", comm.channel_counts->collective,
                      comm.channel_counts->nvls, comm.channel_counts->p2p);
    text += fmt::format(", {} connections\n", comm.connections.size());
    for (const std::vector<std::int32_t>& order : ring_orders(comm))
      text += fmt::format("    ring {}\n", fmt::join(order, " "));
    for (const LogChoice& choice : comm.choices)
      text += fmt::format("    {} of {} bytes: {} {}\n", choice.function, choice.bytes, choice.algorithm,
                          choice.protocol);
  }
  for (const LogSetting& setting : log.environment)
    text += fmt::format("  {}={}\n", setting.name, setting.value);
  for (const LogText& warning : log.warnings)
    text += fmt::format("  line {}: {}\n", warning.line, warning.text);
  return text;
}

std::string p2p_table(const SmiP2pTable& table) {
  std::string text;
  for (std::size_t a = 0; a < table.gpus.size(); ++a) {
    text += fmt::format("  GPU {:<2}", table.gpus[a]);
    for (std::size_t b = 0; b < table.gpus.size(); ++b)
      text += fmt::format(" {:>4}", to_string(table.at(a, b)));
    text += "\n";
  }
  return text;
}

std::string times_table(const NcclTestsTable& table) {
  std::string text =
      fmt::format("  {} over {} ranks\n", table.collective.empty() ? "unknown collective" : table.collective,
                  table.rank_count);
  for (const NcclTestsRow& row : table.rows)
    if (row.out_of_place)
      text += fmt::format("  {:>13} B {:>12.2f} us {:>9.2f} GB/s busbw\n", row.bytes,
                          row.out_of_place->time_us, row.out_of_place->bus_gb_per_s);
  return text;
}

// "GPU 3", with what it is.
std::map<std::string, std::string> facts(const Host& host) {
  std::map<std::string, std::string> all;
  for (const HostGpu& gpu : host.gpus) {
    const PciDevice* const at = pci(host, gpu.pci);
    all[fmt::format("GPU {}", gpu.index)] = fmt::format(
        "{}compute capability {}, NVLinks {}, PCIe {:.4g} GB/s, NUMA {}",
        gpu.model.empty() ? "" : gpu.model + ", ", gpu.compute_capability, nvlinks(gpu),
        at == nullptr ? 0 : pcie_bytes_per_s(*at) * 1e-9, at == nullptr ? "-" : numa(host, at->cpu));
  }
  for (const HostNic& nic : host.nics)
    all[fmt::format("NIC {}", nic.index)] = fmt::format(
        "{}, {:g} Gb/s, port {}, NUMA {}", nic.name, nic.bytes_per_s * 8e-9, nic.port, numa(host, nic.cpu));
  for (std::size_t c = 0; c < host.cpus.size(); ++c)
    all[fmt::format("CPU {}", c)] = fmt::format("{} {} family {} model {}", host.cpus[c].architecture,
                                                host.cpus[c].vendor, host.cpus[c].family, host.cpus[c].model);
  return all;
}

}  // namespace

std::string to_table(std::span<const ImportNote> notes, const std::string& file) {
  std::string text;
  for (const ImportNote& note : notes) {
    const std::string place = note.line > 0 ? fmt::format("{}:{}", file, note.line) : file;
    text += fmt::format("{}: {}: {}\n", place, word(note.kind), note.text);
    if (!note.remedy.empty()) text += fmt::format("    try: {}\n", note.remedy);
  }
  return text;
}

std::string to_table(const TopologyFile& file) {
  std::string text = fmt::format("{}: {}\n", file.name, to_string(file.kind));
  for (const Host& host : file.hosts) text += host_table(host) + nccl_table(host);
  if (!file.graphs.empty()) text += graphs_table(file.graphs);
  if (file.log) text += log_table(*file.log);
  if (file.p2p) text += p2p_table(*file.p2p);
  if (file.times) text += times_table(*file.times);
  return text;
}

std::string difference(const Host& a, const Host& b) {
  const auto ours = facts(a), theirs = facts(b);
  std::set<std::string> names;
  for (const auto* const all : {&ours, &theirs})
    for (const auto& [name, fact] : *all) names.insert(name);
  const auto of = [](const std::map<std::string, std::string>& all, const std::string& name) {
    const auto found = all.find(name);
    return found == all.end() ? std::string("not there") : found->second;
  };
  std::string text;
  for (const std::string& name : names)
    if (of(ours, name) != of(theirs, name))
      text += fmt::format("{}\n  - {}\n  + {}\n", name, of(ours, name), of(theirs, name));
  return text;
}

}  // namespace orrery

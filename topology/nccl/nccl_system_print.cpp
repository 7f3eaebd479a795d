// NCCL's view in the words of its logs.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "topology/nccl/nccl_system.hpp"

namespace orrery::nccl {
namespace {

constexpr const char* kKinds[] = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET"};
constexpr const char* kLinks[] = {"LOC", "NVL", "C2C", "PCI", "SYS", "NET"};

// 64 bits, as NCCL prints a NUMA node of −1.
std::uint64_t bits(std::int64_t id) { return static_cast<std::uint64_t>(id); }

std::string name(const SystemNode& node) {
  return fmt::format("{}/{:x}-{:x}", kKinds[static_cast<std::size_t>(node.kind)], node.host, bits(node.id));
}

class TreePrinter {
 public:
  explicit TreePrinter(const System& system) : system_(system) {}

  void print(std::int32_t index, std::int32_t from, const std::string& lead, std::size_t indent) {
    const SystemNode& node = at(index);
    text += lead + name(node);
    if (node.kind == NodeKind::kGpu) text += fmt::format(" ({})", node.rank);
    if (node.kind == NodeKind::kCpu)
      text += fmt::format(" ({}/{}/{})", static_cast<int>(node.architecture), static_cast<int>(node.vendor),
                          node.cpu_model);
    if (node.kind == NodeKind::kPci) text += fmt::format(" ({:x})", node.pci_device);
    text += '\n';
    for (const std::int32_t l : node.links) {
      const SystemLink& link = system_.links[static_cast<std::size_t>(l)];
      if (link.kind == LinkClass::kPci && link.to == from) continue;
      const std::string line =
          std::string(indent, ' ') +
          fmt::format("+ {}[{:.1f}] - ", kLinks[static_cast<std::size_t>(link.kind)], link.gb_per_s);
      const SystemNode& to = at(link.to);
      if (link.kind == LinkClass::kPci)
        print(link.to, index, line, line.size());
      else if (to.kind == NodeKind::kNet)
        text += line + fmt::format("{} ({}/{}/{}/{:.6f})\n", name(to), to.collnet ? 1 : 0, to.card, to.port,
                                   to.gb_per_s);
      else
        text += line + name(to) + '\n';
    }
  }

  std::string text;

 private:
  const SystemNode& at(std::int32_t node) const { return system_.nodes[static_cast<std::size_t>(node)]; }

  const System& system_;
};

void append_paths(const System& system, std::int32_t from, std::string& text) {
  text += name(system.nodes[static_cast<std::size_t>(from)]) + " :";
  for (const auto& kind : system.of_kind)
    for (const std::int32_t to : kind) {
      if (system.paths_to[static_cast<std::size_t>(to)].empty()) continue;
      const SystemPath& path = system.path(from, to);
      fmt::format_to(std::back_inserter(text), "{} ({}/{:.1f}/{}) ",
                     name(system.nodes[static_cast<std::size_t>(to)]), path.links.size(), path.gb_per_s,
                     to_string(path.type));
    }
  text += '\n';
}

}  // namespace

std::string to_text(const System& system) {
  TreePrinter tree(system);
  for (const std::int32_t cpu : system.all(NodeKind::kCpu)) tree.print(cpu, -1, "", 0);
  std::string text = fmt::format("=== System : maxBw {:.1f} totalBw {:.1f} ===\n", system.max_gb_per_s,
                                 system.total_gb_per_s) +
                     tree.text + "==========================================\n";
  for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNet})
    for (const std::int32_t from : system.all(kind)) append_paths(system, from, text);
  return text;
}

std::string to_text(const Graph& graph, const System& system) {
  std::string text = fmt::format(
      "Pattern {}, crossNic {}, nChannels {}, bw {:.6f}/{:.6f}, type {}/{}, "
      "sameChannels {}\n",
      static_cast<int>(graph.pattern), graph.cross_nic, graph.channels.size(), graph.node_gb_per_s,
      graph.network_gb_per_s, to_string(graph.node_path), to_string(graph.network_path),
      graph.same_channels ? 1 : 0);
  const auto of_device = [&](NodeKind kind, std::int64_t device) {
    for (const std::int32_t index : system.all(kind)) {
      const SystemNode& node = system.nodes[static_cast<std::size_t>(index)];
      if (node.host == device >> 56 && node.device == static_cast<std::int32_t>(device)) return name(node);
    }
    return fmt::format("{}/{:x}-{:x}", kKinds[static_cast<std::size_t>(kind)], device >> 56, device);
  };
  for (std::size_t c = 0; c < graph.channels.size(); ++c) {
    const GraphChannel& channel = graph.channels[c];
    text += fmt::format("{:2} :", c);
    if (channel.entry_nic) text += ' ' + of_device(NodeKind::kNet, *channel.entry_nic);
    for (const std::int64_t gpu : channel.gpus) text += ' ' + of_device(NodeKind::kGpu, gpu);
    if (channel.exit_nic) text += ' ' + of_device(NodeKind::kNet, *channel.exit_nic);
    text += '\n';
  }
  return text;
}

}  // namespace orrery::nccl

// Rules over nvidia-smi's tables.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "report/diagnose_rules.hpp"

namespace orrery::diagnosis {

void look_at_matrix(const TopologyFile& file, Findings& found) {
  if (file.matrix->mig_enabled) {
    Finding finding;
    finding.id = "mig-enabled";
    finding.title = "MIG is enabled";
    finding.evidence.push_back({file.name, 0, "the text around the matrix says MIG Enabled"});
    finding.cause =
        "MIG instances have no NVLink P2P, and NCCL refuses several instances of one GPU in a communicator";
    finding.remedy = "nvidia-smi -mig 0 on the GPUs of the job";
    finding.stops_run = true;
    found.push_back(std::move(finding));
  }
}

void look_at_notes(const TopologyFile& file, Findings& found) {
  const auto taken_up = [&](const ImportNote& note) {
    return std::ranges::any_of(found, [&](const Finding& finding) {
      return std::ranges::any_of(finding.evidence, [&](const Evidence& evidence) {
        return evidence.text == note.text ||
               (note.line > 0 && evidence.file == file.name && evidence.line == note.line);
      });
    });
  };
  for (const ImportNote& note : file.notes) {
    if (note.kind != ImportNote::Kind::kSuspect || taken_up(note)) continue;
    Finding finding;
    finding.id = "suspect";
    finding.title = note.text;
    finding.evidence.push_back({file.name, note.line, note.text});
    finding.cause = "the file contradicts itself, or one device differs from all its peers";
    finding.remedy = note.remedy.empty() ? "print the file again on that host" : note.remedy;
    found.push_back(std::move(finding));
  }
}

void look_at_p2p(const TopologyFile& file, Findings& found) {
  const SmiP2pTable& table = *file.p2p;
  std::set<std::string> refused;
  std::size_t pairs = 0;
  for (std::size_t a = 0; a < table.gpus.size(); ++a)
    for (std::size_t b = 0; b < table.gpus.size(); ++b) {
      const SmiP2pStatus status = table.at(a, b);
      if (a == b || status == SmiP2pStatus::kOk || status == SmiP2pStatus::kUnknown) continue;
      ++pairs;
      if (refused.size() < 6)
        refused.insert(fmt::format("GPU{} -> GPU{} {}", table.gpus[a], table.gpus[b], to_string(status)));
    }
  if (pairs == 0) return;
  Finding finding;
  finding.id = "p2p-not-supported";
  finding.title = fmt::format("the driver refuses P2P between {} pairs of GPUs", pairs);
  finding.evidence.push_back({file.name, 0, fmt::format("{}", fmt::join(refused, ", "))});
  finding.cause =
      "GNS: this kind of GPU has none (GeForce since RTX 40); CNS: the chipset; TNS: the way between them; "
      "DR: switched "
      "off in the registry. NCCL copies through host memory";
  finding.remedy =
      "reckon with the host's memory bandwidth instead of PCIe P2P; patched drivers that force it have hung "
      "and "
      "corrupted data";
  found.push_back(std::move(finding));
}

void look_at_graphs(const TopologyFile& file, std::span<const Host> hosts, Findings& found) {
  for (const nccl::Graph& graph : file.graphs) {
    if (graph.kind != nccl::GraphKind::kRing || graph.channels.empty() || graph.node_gb_per_s > 0.5) continue;
    Finding finding;
    finding.id = "no-path-found";
    finding.title = fmt::format("the ring graph has {} channel{} at {:g} GB/s", graph.channels.size(),
                                graph.channels.size() == 1 ? "" : "s", graph.node_gb_per_s);
    finding.evidence.push_back(
        {file.name, 0,
         fmt::format("graph id 0: nchannels {}, speedintra {:g}, typeintra {}", graph.channels.size(),
                     graph.node_gb_per_s, to_string(graph.node_path))});
    finding.cause = "NCCL's search found nothing at the slowest speed it tries and fell back to simple order";
    finding.remedy = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH shows the link of 0 GB/s";
    finding.now_gb_per_s = static_cast<double>(graph.channels.size()) * graph.node_gb_per_s;
    if (!hosts.empty()) finding.mended_gb_per_s = ring_gb_per_s(hosts.front(), false);
    finding.rate_of = "rings of the graph file";
    found.push_back(std::move(finding));
  }
}

}  // namespace orrery::diagnosis

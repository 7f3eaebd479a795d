#include "topology/import/topology_file.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "topology/import/hwloc_host.hpp"
#include "topology/import/nccl_graph_xml.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/smi_host.hpp"

namespace orrery {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// The name of the first element that isn't a comment, a prolog or a document type.
std::string_view root_element(std::string_view text) {
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string_view::npos;) {
    if (text.substr(at).starts_with("<!--")) {
      const std::size_t end = text.find("-->", at);
      if (end == std::string_view::npos) return {};
      at = end + 3;
    } else if (text.substr(at).starts_with("<?") || text.substr(at).starts_with("<!")) {
      ++at;
    } else {
      const std::size_t end = text.find_first_of(" \t\r\n/>", at + 1);
      return text.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
    }
  }
  return {};
}

std::optional<TopologyFileKind> xml_kind(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos || text[first] != '<') return std::nullopt;
  const std::string_view root = root_element(text);
  if (root == "system") return TopologyFileKind::kNcclTopology;
  if (root == "graphs") return TopologyFileKind::kNcclGraphs;
  if (root == "topology") return TopologyFileKind::kHwloc;
  if (root == "platform") return TopologyFileKind::kPlatform;
  return std::nullopt;
}

template <class Read>
bool can_read(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// What the user knows of GPUs and ports of which the file says nothing.
void fill_in(Host& host, const TopologyFileOptions& options) {
  for (HostGpu& gpu : host.gpus)
    if (gpu.model.empty()) gpu.model = options.gpu_model;
  for (HostNic& nic : host.nics)
    if (nic.bytes_per_s == 0) nic.bytes_per_s = options.nic_bytes_per_s;
}

SmiAssumptions assumptions(const TopologyFileOptions& options) {
  SmiAssumptions assumed;
  assumed.gpu_model = options.gpu_model;
  assumed.nic_bytes_per_s = options.nic_bytes_per_s;
  return assumed;
}

}  // namespace

std::string_view to_string(TopologyFileKind kind) {
  constexpr std::array<std::string_view, 9> kNames{
      "nvidia-smi topo -m", "nvidia-smi topo -p2p", "NCCL topology file", "NCCL graph file", "NCCL log",
      "nccl-tests table",   "hwloc topology",       "SimGrid platform",   "machine"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::optional<TopologyFileKind> topology_file_kind(std::string_view text) {
  if (const auto kind = xml_kind(text)) return kind;
  const std::string file;
  // A log may hold a table of times, and a job's output both; the table is then the rarer thing.
  if (has(text, "busbw") && can_read([&] { read_nccl_tests(text, file); }))
    return TopologyFileKind::kNcclTests;
  if (has(text, "NCCL") && can_read([&] { read_nccl_log(text, file); })) return TopologyFileKind::kNcclLog;
  if (can_read([&] { read_smi_matrix(text, file); })) return TopologyFileKind::kSmiMatrix;
  if (can_read([&] { read_smi_p2p(text, file); })) return TopologyFileKind::kSmiP2p;
  return std::nullopt;
}

TopologyFile read_topology_file(std::string_view text, const std::string& name,
                                const TopologyFileOptions& options) {
  TopologyFile file;
  file.name = name;
  const auto take = [&](HostImport import) {
    file.hosts = std::move(import.hosts);
    file.notes.insert(file.notes.end(), import.notes.begin(), import.notes.end());
  };
  // What can't be read as anything is most likely a damaged matrix, whose reader says best what is wrong.
  file.kind = topology_file_kind(text).value_or(TopologyFileKind::kSmiMatrix);
  switch (file.kind) {
    case TopologyFileKind::kSmiMatrix: {
      file.matrix = read_smi_matrix(text, name);
      file.notes = file.matrix->notes;
      take(host_from_smi(*file.matrix, assumptions(options)));
      break;
    }
    case TopologyFileKind::kSmiP2p:
      file.p2p = read_smi_p2p(text, name);
      file.notes = file.p2p->notes;
      break;
    case TopologyFileKind::kNcclTopology: {
      NcclTopologyOptions xml;
      xml.gpu_bus_ids = options.gpu_bus_ids;
      xml.map_rccl = options.map_foreign;
      take(read_nccl_topology(text, name, xml));
      break;
    }
    case TopologyFileKind::kNcclGraphs: {
      NcclGraphImport import = read_nccl_graphs(text, name);
      file.graphs = std::move(import.graphs);
      file.notes = std::move(import.notes);
      break;
    }
    case TopologyFileKind::kNcclTests:
      file.times = read_nccl_tests(text, name);
      file.notes = file.times->notes;
      if (!has(text, "NCCL INFO")) break;
      [[fallthrough]];
    case TopologyFileKind::kNcclLog:
      file.log = read_nccl_log(text, name);
      file.notes.insert(file.notes.end(), file.log->notes.begin(), file.log->notes.end());
      take(hosts_from_log(*file.log));
      break;
    case TopologyFileKind::kHwloc: take(read_hwloc_xml(text, name)); break;
    case TopologyFileKind::kMachine: break;
    case TopologyFileKind::kPlatform:
      fail(ErrorKind::kInput,
           "{}: a SimGrid platform has hosts and links but no GPUs, sockets or network cards, so that no "
           "machine "
           "follows from it; name a matrix, a topology file or a log",
           name);
  }
  for (Host& host : file.hosts) fill_in(host, options);
  return file;
}

}  // namespace orrery

// Nodes of a cluster from the files of a real one.

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "scenarios/sections.hpp"
#include "topology/import/host_node.hpp"
#include "topology/import/merge_hosts.hpp"
#include "topology/import/topology_file.hpp"

namespace orrery {
namespace {

std::optional<TopologyFile> read_file(const Section& section) {
  std::filesystem::path path;
  section.file("topology", path);
  if (path.empty()) return std::nullopt;
  TopologyFileOptions options;
  section.text("gpu", options.gpu_model);
  section.bandwidth("nic", options.nic_bytes_per_s);
  std::ifstream in(path, std::ios::binary);
  std::error_code ignored;
  if (!in || std::filesystem::is_directory(path, ignored)) {
    section.fault(
        "topology",
        fmt::format("there is no file {}; expected the output of nvidia-smi topo -m, NCCL's topology file or "
                    "log, or hwloc's XML",
                    path.string()));
    return std::nullopt;
  }
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return read_topology_file(text, path.filename().string(), options);
}

// A twin's nodes are alike. One file may hold several hosts.
const Host& the_host(const MergedHosts& merged) {
  if (merged.hosts.empty())
    fail(ErrorKind::kInput,
         "describes no machine; expected a matrix of nvidia-smi topo -m, NCCL's topology file, or a "
         "log with NCCL_DEBUG_SUBSYS=GRAPH");
  if (merged.groups.size() > 1)
    fail(ErrorKind::kInput, "its {} hosts are not alike: {}; orrery diagnose says what that costs",
         merged.hosts.size(), merged.notes.empty() ? "see orrery topo check" : merged.notes.back().text);
  return merged.hosts.front();
}

}  // namespace

void read_topology_node(const Section& section, Cluster& cluster, std::vector<std::string>& notes) {
  try {
    const std::optional<TopologyFile> file = read_file(section);
    if (!file) return;
    std::vector<HostImport> imports;
    for (const Host& host : file->hosts) imports.push_back({{host}, {}});
    const MergedHosts merged = merge_hosts(std::move(imports));
    const Host& host = the_host(merged);
    std::vector<ImportNote> remarks = file->notes;
    cluster.node = node_of(host, gpu_type_of(host, remarks), remarks);
    for (const ImportNote& note : remarks) notes.push_back(fmt::format("{}: {}", file->name, note.text));
  } catch (const Error& error) {
    section.fault("topology", error.what());
  }
}

}  // namespace orrery

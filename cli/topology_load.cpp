#include "cli/topology_load.hpp"

#include <CLI/App.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "cli/input.hpp"
#include "topology/cluster.hpp"
#include "topology/import/detect_host.hpp"
#include "topology/import/node_host.hpp"

namespace orrery {
namespace {

TopologyFile load(const std::string& name, const TopologyFileOptions& options) {
  if (name == "-") {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    return read_topology_file(text, "standard input", options);
  }
  TopologyFile file;
  file.name = name;
  file.kind = TopologyFileKind::kMachine;
  if (name == "here") {
    HostImport import = detect_host();
    file.name = "this machine";
    file.hosts = std::move(import.hosts);
    file.notes = std::move(import.notes);
    return file;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored)) {
    if (const auto node = catalogue_node(name)) {
      file.hosts = hosts_of(*node);
      return file;
    }
    fail(ErrorKind::kInput, "{}: no such file, and no node of the catalogue{}", name,
         did_you_mean(name, catalogue_names()));
  }
  return read_topology_file(read_file(name), name, options);
}

}  // namespace

void add_topology_options(CLI::App& command, TopologyRequest& request) {
  command
      .add_option(
          "FILE", request.files,
          "Output of nvidia-smi topo, NCCL topology or graph file, NCCL log, nccl-tests table, hwloc XML; "
          "- is standard input, here this machine, else a node of the catalogue")
      ->required();
  command.add_option("--gpu", request.options.gpu_model, "GPUs of files that don't say it, e.g. h100-sxm");
  command.add_option("--nic", request.nic_rate,
                     "Rate of network ports of files that don't say it, e.g. 400Gb/s");
  command
      .add_option("--gpu-bus-ids", request.options.gpu_bus_ids,
                  "GPUs of topology files that leave them to detection (nvidia-smi --query-gpu=pci.bus_id)")
      ->delimiter(',');
  command.add_flag("--map-foreign", request.options.map_foreign,
                   "Read other vendors' files as if they were NVIDIA's");
}

bool is_scenario_file(const std::string& name) { return name.ends_with(".yaml") || name.ends_with(".yml"); }

std::vector<TopologyFile> load_topologies(TopologyRequest request) {
  if (!request.nic_rate.empty()) {
    const auto rate = parse_bandwidth(request.nic_rate);
    if (!rate || !(*rate > 0))
      fail(ErrorKind::kUsage, "--nic {}: expected a rate such as 400Gb/s or 50GB/s", request.nic_rate);
    request.options.nic_bytes_per_s = *rate;
  }
  std::vector<TopologyFile> files;
  for (const std::string& name : request.files) files.push_back(load(name, request.options));
  return files;
}

}  // namespace orrery

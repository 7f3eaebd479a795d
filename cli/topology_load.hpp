#pragma once
// The arguments of commands that take files of topologies: files, standard input, this machine, or a node of
// the catalogue.

#include <string>
#include <vector>

#include "topology/import/topology_file.hpp"

namespace CLI {
class App;
}

namespace orrery {

struct TopologyRequest {
  std::vector<std::string>
      files;  // "-": standard input; "here": this machine; else a file, or a catalogue's name.
  TopologyFileOptions options;
  std::string nic_rate;  // "400Gb/s"
};

// FILE… and what files may leave out.
void add_topology_options(CLI::App& command, TopologyRequest& request);

// By its name, .yaml or .yml: commands that take files of topologies take one scenario instead.
bool is_scenario_file(const std::string& name);

// THROWS Error(kInput) naming the file.
std::vector<TopologyFile> load_topologies(TopologyRequest request);

}  // namespace orrery

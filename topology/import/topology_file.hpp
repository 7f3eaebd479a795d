#pragma once
// Any file that says something of a machine's topology: what it is, and what it says. For commands that take
// whatever people have.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/host.hpp"
#include "topology/import/nccl_log.hpp"
#include "topology/import/nccl_tests_table.hpp"
#include "topology/import/smi_matrix.hpp"
#include "topology/import/smi_p2p.hpp"
#include "topology/nccl/nccl_graph.hpp"

namespace orrery {

enum class TopologyFileKind : std::uint8_t {
  kSmiMatrix,     // nvidia-smi topo -m, -mp
  kSmiP2p,        // nvidia-smi topo -p2p
  kNcclTopology,  // NCCL_TOPO_DUMP_FILE
  kNcclGraphs,    // NCCL_GRAPH_DUMP_FILE
  kNcclLog,       // NCCL_DEBUG=INFO
  kNcclTests,     // Tables of nccl-tests, also with a log around them.
  kHwloc,         // lstopo --of xml
  kPlatform,      // SimGrid's platform files.
  kMachine,       // No file: this machine, or one of the catalogue.
};
std::string_view to_string(TopologyFileKind kind);  // "nvidia-smi topo -m"

// By what stands in it, never by its name. Empty: none of them.
std::optional<TopologyFileKind> topology_file_kind(std::string_view text);

struct TopologyFileOptions {
  std::vector<std::string> gpu_bus_ids = {};  // For topology files that leave the GPUs to detection.
  std::string gpu_model;                      // "H100"; for files that don't say it.
  double nic_bytes_per_s = 0;                 // Likewise; 0: not known.
  bool map_foreign = false;                   // Read other vendors' files as NVIDIA's.
};

struct TopologyFile {
  std::string name;
  TopologyFileKind kind = TopologyFileKind::kSmiMatrix;
  std::vector<Host> hosts;  // As far as it describes any.
  std::vector<ImportNote> notes;
  // What it says beside that, by its kind.
  std::optional<SmiMatrix> matrix;
  std::optional<SmiP2pTable> p2p;
  std::vector<nccl::Graph> graphs;
  std::optional<NcclLog> log;
  std::optional<NcclTestsTable> times;
};

// THROWS Error(kInput) when `text` is nothing of the above, naming what is read and the commands that print
// it, or when it is and can't be read.
TopologyFile read_topology_file(std::string_view text, const std::string& name,
                                const TopologyFileOptions& options = {});

}  // namespace orrery

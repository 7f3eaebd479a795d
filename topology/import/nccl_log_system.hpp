#pragma once
// NCCL's own dump of a machine in a log (NCCL_DEBUG_SUBSYS=GRAPH): the tree under "=== System", the table of
// paths after it and the graphs ("Pattern …") that its search laid out.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"
#include "topology/nccl/nccl_graph.hpp"

namespace orrery {

// "GPU/0-806000": kind GPU, host number 0, id 0x806000. Older logs have no host number.
struct LogNodeId {
  std::string kind;
  std::int32_t system = 0;
  std::uint64_t id = 0;
  auto operator<=>(const LogNodeId&) const = default;
};

struct LogSystemNode {
  LogNodeId id;
  std::string detail;        // What stands in brackets: a GPU's rank, a CPU's kind, a switch's model.
  std::int32_t parent = -1;  // Into LogSystem::nodes; −1: a CPU.
  std::string link;          // From the parent: "PCI", "NVL", "C2C", "SYS", "NET", "LOC".
  double gb_per_s = 0;
  bool reference = false;  // Only a link to something that stands elsewhere in the tree.
  std::int32_t line = 0;
  bool same(const LogSystemNode& other) const {
    return id == other.id && detail == other.detail && parent == other.parent && link == other.link &&
           gb_per_s == other.gb_per_s;
  }
};

struct LogPath {
  LogNodeId from, to;
  std::int32_t hops = 0;
  double gb_per_s = 0;
  nccl::PathClass path = nccl::PathClass::kDis;
};

struct LogSystem {
  std::string host;  // Whose line it is.
  double max_gb_per_s = 0, total_gb_per_s = 0;
  std::vector<LogSystemNode> nodes;  // Parents before children.
  std::vector<LogPath> paths;
  std::int32_t line = 0;
};

struct LogGraphs {
  std::string host;
  std::int32_t rank = -1;
  std::vector<nccl::Graph> graphs;  // In the order of the log: ring, tree, CollNet's, NVLS.
  std::vector<std::vector<std::vector<LogNodeId>>> channels;  // Of each, as printed.
  std::vector<std::int32_t> lines;
};

namespace nccl_log {

// "CPU/0-1", "NET/0"; nothing for what isn't one.
bool parse_node_id(std::string_view text, LogNodeId& id);
// The line under the heading that opens a dump. False: none of its lines.
bool read_system_line(std::string_view text, std::int32_t line, LogSystem& system,
                      std::vector<std::int32_t>& indents, std::vector<ImportNote>& notes);
// "GPU/x :GPU/y (hops/bw/class) …".
bool read_path_line(std::string_view text, std::int32_t line, LogSystem& system,
                    std::vector<ImportNote>& notes);
// "Pattern 4, crossNic 0, nChannels 1, bw …".
bool read_pattern_line(std::string_view text, std::int32_t line, LogGraphs& graphs,
                       std::vector<ImportNote>& notes);
// " 0 : NET/0 GPU/0 NET/0", after a pattern's line.
bool read_graph_channel(std::string_view text, std::int32_t line, LogGraphs& graphs,
                        std::vector<ImportNote>& notes);
// Turns the printed ids into device numbers, with the system that names them where there is one.
void number_devices(LogGraphs& graphs, const std::vector<LogSystem>& systems, std::vector<ImportNote>& notes);

}  // namespace nccl_log
}  // namespace orrery

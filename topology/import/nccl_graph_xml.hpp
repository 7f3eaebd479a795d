#pragma once
// NCCL's graph files: what its search found (NCCL_GRAPH_DUMP_FILE) and what it is made to take instead
// (NCCL_GRAPH_FILE). Channels are those before NCCL doubles them.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/import_note.hpp"
#include "topology/nccl/nccl_graph.hpp"

namespace orrery {

struct NcclGraphOptions {
  // Of a text that was cut off, takes the channels that are whole, with a note.
  bool keep_whole_channels = false;
};

struct NcclGraphImport {
  std::vector<nccl::Graph> graphs;  // As they stand there.
  std::vector<ImportNote> notes;
};

// Device numbers may be decimal, as old versions write them, or hexadecimal. THROWS Error(kInput) naming the
// line; for a text that was cut off it says how many channels of how many are there.
NcclGraphImport read_nccl_graphs(std::string_view text, std::string_view file,
                                 const NcclGraphOptions& options = {});

// In the form of NCCL 2.22 and later. Reading it back gives equal graphs.
std::string write_nccl_graphs(std::span<const nccl::Graph> graphs);

}  // namespace orrery

#pragma once
// Chakra execution traces: what each rank did, with dependencies. A trace is a Program, not a Graph.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/program.hpp"

namespace orrery {

struct ChakraFile {
  std::string place;  // For messages.
  std::string bytes;  // Protobuf (.et), or JSON with a "workload_graph".
};

struct ChakraOptions {
  // More ranks than files: only with one file, which then says what every rank does, its peers counted from
  // its own number. 0: as many as files.
  std::int32_t ranks = 0;
  // Members of the process groups that nodes name (pg_name), by name. "" and "0" are all ranks.
  std::map<std::string, std::vector<std::int32_t>> groups;
};

struct ChakraImport {
  Program program;
  std::vector<std::string> notes;  // What was left out or assumed.
};

// `files` by rank. Compute takes the time that was measured, or the arithmetic and bytes that the node has
// instead (num_ops, tensor_size); sends, receives and collectives become those of a Program and take the time
// that the simulator works out. Collectives without a size take their measured time. Ops of the host are left
// out and what waited for them waits for what they waited for. Ranks that did the same share a role.
// THROWS Error(kInput) naming file and node: not a trace, a dependency that isn't there or a cycle, a peer or
// process group that isn't known, a collective that a Program doesn't have. verify(program) may still find
// ranks that disagree.
ChakraImport read_chakra(const std::vector<ChakraFile>& files, const ChakraOptions& options = {});

}  // namespace orrery

#pragma once
// What a topology file comes to, for people: devices, all-pairs path classes with their GB/s, what NCCL's
// search makes of it, what a log says, and every note of the reader.

#include <span>
#include <string>

#include "topology/import/topology_file.hpp"

namespace orrery {

std::string to_table(const TopologyFile& file);

// "assumed", "repaired", "missing", "suspect": one line each, with the remedy under it.
std::string to_table(std::span<const ImportNote> notes, const std::string& file);

// What differs between two machines, a line each; empty when nothing that routes or rates depend on does.
std::string difference(const Host& a, const Host& b);

}  // namespace orrery

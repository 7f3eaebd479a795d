#pragma once
// What orrery graph says of a graph or a trace.

#include <string>
#include <vector>

#include "cli/graph_load.hpp"

namespace orrery {

// Everything verify has to say of it.
std::vector<std::string> faults_of(const LoadedGraph& loaded);

// Of a graph: sizes, arithmetic and bytes in all, by kind of op and by block, and its hash. Of a trace:
// ranks, roles, and instructions by kind with their time or bytes.
std::string explain_text(const LoadedGraph& loaded, const std::string& file);
std::string explain_json(const LoadedGraph& loaded, const std::string& file);

}  // namespace orrery

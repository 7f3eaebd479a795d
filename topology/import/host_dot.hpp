#pragma once
// A machine as a drawing.

#include <string>

#include "topology/import/host.hpp"

namespace orrery {

// For Graphviz (`dot -Tsvg`): a box per NUMA node with its PCIe tree, GPUs and network ports, each segment
// with its rate; NVLinks with their number and rate, all switches as one. Equal hosts give equal texts.
std::string write_graphviz(const Host& host);

}  // namespace orrery

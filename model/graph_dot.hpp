#pragma once
// A Graph as a picture: text for Graphviz.

#include <string>

#include "model/graph.hpp"

namespace orrery {

struct DotOptions {
  bool blocks = false;  // One node per block and phase instead of one per op.
};

// "digraph { … }": ops as boxes by phase, inputs and parameters as ellipses, an edge per tensor with its
// shape. Of blocks: how many ops of which kinds, and edges with the number of tensors that cross.
std::string to_dot(const Graph& graph, const DotOptions& options = {});

}  // namespace orrery

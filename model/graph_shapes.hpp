#pragma once
// The shape rule of each op kind. Part of verify(graph).

#include <string>

#include "model/graph.hpp"

namespace orrery {

// The first thing that is wrong with the tensors of `op`, or "". REQUIRES: its ids are in range.
std::string shape_fault(const Graph& graph, const Op& op);

}  // namespace orrery

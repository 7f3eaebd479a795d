#pragma once
// The op kinds that only imported graphs have (see only_imported): their shape rules, arithmetic and memory
// traffic, and which outputs depend on which inputs. Parts of verify, flops and traffic.

#include <string>
#include <vector>

#include "model/graph.hpp"

namespace orrery {

// Whether two shapes are the same dimension by dimension, or of the same sizes.
bool same_sizes(const Graph& graph, const std::vector<DimId>& a, const std::vector<DimId>& b);

// The first thing that is wrong with the tensors of `op`, or "". REQUIRES: only_imported(op.kind).
std::string imported_shape_fault(const Graph& graph, const Op& op);

// Products of matrices and convolutions in full (a multiply-add is 2, a causal mask halves attention), a
// softmax 5 per element (maximum, subtract, exp, sum, divide), reductions 1 per element read, element-wise
// operators 1 per element made; moving data is none.
double imported_flops(const Graph& graph, const Op& op, const Sizes& sizes);

// As traffic(graph, op, sizes): a view moves nothing; a slice, a gather and an expansion read no more than
// they write, and a gather its indices.
Traffic imported_traffic(const Graph& graph, const Op& op, const Sizes& sizes);

// What is wrong with the outputs of a graph that has some: one of them has to be reached from every input
// that a forward op reads, or that nobody reads; no input may have two gradients. Each fault names the inputs
// or outputs that are left out. REQUIRES: ids in range.
std::vector<std::string> output_faults(const Graph& graph);

}  // namespace orrery

#pragma once
// A fingerprint of what a Graph computes.

#include <cstdint>
#include <string>

#include "model/graph.hpp"

namespace orrery {

// The same for two graphs that differ in names, in blocks, and in the order of ops that don't depend on each
// other; different, but for a chance of about 2⁻⁶⁴, when kinds, phases, shapes, types, attributes, who reads
// what or the order of the outputs differ. Stable over runs and machines. REQUIRES: a graph that verify
// passes but for what it says of outputs and losses.
std::uint64_t graph_hash(const Graph& graph);

// 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace orrery

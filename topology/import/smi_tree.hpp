#pragma once
// The PCIe tree that a matrix speaks of: which devices share a switch, switches that share one above them,
// host bridges and CPUs. A matrix that no tree can satisfy gets the tree that most of its cells agree with.

#include <cstdint>
#include <vector>

#include "topology/import/smi_matrix.hpp"

namespace orrery {

// Group numbers by device of the matrix, each counted from 0 in order of first devices; a group of one level
// lies within one group of the next.
struct SmiTree {
  std::vector<std::int32_t> near;   // PIX: below one switch.
  std::vector<std::int32_t> upper;  // PXB: below switches that meet before the CPU.
  std::vector<std::int32_t> root;   // PHB: below one host bridge.
  std::vector<std::int32_t> cpu;    // NODE: of one NUMA node.
};

SmiTree smi_tree(const SmiMatrix& matrix);

// What the tree says of a pair, in the matrix's words; never NVLink.
SmiRelation relation_in(const SmiTree& tree, std::size_t a, std::size_t b);

// Cells that the tree contradicts.
std::vector<ImportNote> tree_contradictions(const SmiMatrix& matrix, const SmiTree& tree);

}  // namespace orrery

#pragma once
// GPUs and network cards that a topology file lists as plain PCI functions, or leaves to detection.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topology/import/host.hpp"
#include "topology/import/note_tally.hpp"

namespace orrery {

// Adds to `host` the GPUs and network cards that stand in it as PCI devices only, by their class or, for what
// has none, by `gpu_bus_ids`; numbers those that have no number, and sorts all by it. GPUs of the list that
// the tree lacks get the place that PCI's numbering of buses gives them; `pci_lines` grows with them.
void find_leaves(Host& host, std::span<const std::string> gpu_bus_ids, std::vector<std::int32_t>& pci_lines,
                 NoteTally& notes);

}  // namespace orrery

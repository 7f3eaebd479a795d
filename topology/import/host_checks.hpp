#pragma once
// What in a description of a machine can hardly be so, and what NCCL would make of it: the one bridge that a
// virtual machine reports as a twentieth of itself, the GPU that came up without NVLinks, the file whose
// author swapped two addresses.

#include <cstdint>
#include <span>
#include <vector>

#include "topology/import/host.hpp"

namespace orrery {

// kSuspect notes, and kMissing ones for NUMA nodes that nobody knows. `pci_lines`: the lines of Host::pci in
// the file it was read from, or empty.
std::vector<ImportNote> check_host(const Host& host, std::span<const std::int32_t> pci_lines = {});

}  // namespace orrery

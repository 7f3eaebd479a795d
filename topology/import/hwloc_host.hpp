#pragma once
// Machines by hwloc: from the XML that `lstopo machine.xml` writes, or this one. hwloc knows sockets, NUMA
// nodes, the PCIe tree and which card is whose, not the rates of network ports nor the kind of a GPU.

#include <string>
#include <string_view>

#include "topology/import/host.hpp"

namespace orrery {

// The PCIe tree is NCCL's: of a root port and of the two ports that a switch has on a way, the switch's upper
// one is kept. THROWS Error(kInput) for what libhwloc can't load.
HostImport read_hwloc_xml(std::string_view text, std::string_view file);

// This machine, by hwloc alone: detect_host() (topology/import/detect_host.hpp) adds what other sources know.
HostImport read_hwloc_live();

}  // namespace orrery

#pragma once
// The machine that the program runs on, by what is there: hwloc for processors and the PCIe tree, the
// kernel's /sys for link and port rates, NVIDIA's management library for GPUs and NVLinks. Containers hide
// much of it; every part that is missing is a note with the command that would tell.

#include <filesystem>

#include "topology/import/host.hpp"
#include "topology/import/note_tally.hpp"

namespace orrery {

// Never fails for want of a GPU, a driver or a readable /sys.
HostImport detect_host();

// Adds what /sys says of the PCI devices and network ports in `host`: link rates (what the slot and the
// device can, not what an idle one runs at), ports that are up with their rates and the card's guid. Ports
// that are down are left out, as NCCL does. `sysfs` is "/sys".
void add_sysfs(Host& host, const std::filesystem::path& sysfs, NoteTally& notes);

// Adds the GPUs that NVML lists, or what it says of those in `host`.
void add_nvml(Host& host, NoteTally& notes);

}  // namespace orrery

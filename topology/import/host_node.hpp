#pragma once
// A Host as the node type that clusters are made of: every bridge, socket and NVLink a device or a link with
// its rate, so that shared segments stay shared.

#include <vector>

#include "topology/cluster.hpp"
#include "topology/import/host.hpp"

namespace orrery {

// The catalogue's GPU that the host's GPUs say they are; by their compute capability where they don't name a
// model. What was taken, and what follows from that, is added to `notes`. GPUs that the catalogue doesn't
// have get an entry without rates: routes can be worked out, kernels can't be timed. THROWS Error(kInput)
// when the host has GPUs of several kinds.
GpuType gpu_type_of(const Host& host, std::vector<ImportNote>& notes);

// Devices are named gpu0, nic0, nvswitch0, pcie0 and cpu0 in the host's order. Rates are NCCL's
// (link_rates.hpp). A twin's node has one rate of NICs: slower ports, and those whose rate nobody knows while
// others' is known, are left out with a note. REQUIRES: the indices in `host` are good.
// THROWS Error(kInput) when it has no GPU, or when no links lead from one GPU to another.
NodeType node_of(const Host& host, const GpuType& gpu, std::vector<ImportNote>& notes);

}  // namespace orrery

#pragma once
// NCCL's topology files: what NCCL_TOPO_DUMP_FILE writes, what NCCL_TOPO_FILE reads, and what clouds ship for
// their machines. The reader takes more than NCCL's own does and says where it did; the writer keeps NCCL's
// limits.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/import/host.hpp"

namespace orrery {

struct NcclTopologyOptions {
  // Files by hand often leave the GPUs to detection. Their bus ids in the order of their numbers, as
  // `nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader` prints them; what hangs in the file's tree and
  // has neither class nor place in this list is then a network card.
  std::vector<std::string> gpu_bus_ids = {};
  // Reads a file of RCCL (version 2): xGMI links as NVLinks, compute units left out.
  bool map_rccl = false;
};

// One Host per host hash. GPUs and network ports are those of `gpu` and `net` elements, else the leaves of
// those PCI classes; numbers that are missing follow the bus ids. `file` is for messages and Host::source.
// THROWS Error(kInput) for what is not well formed, is no topology, or is RCCL's and not asked for.
HostImport read_nccl_topology(std::string_view text, std::string_view file,
                              const NcclTopologyOptions& options = {});

// NCCL reads at most so many elements from one file.
inline constexpr std::int32_t kNcclMaxElements = 256;

struct NcclTopologyWriteOptions {
  // Over the limit: joins the NVLinks to switches of each GPU into one element, which NCCL counts alike, and
  // leaves out branches without GPU or network card, as NCCL would.
  bool prune = false;
};

struct NcclTopologyText {
  std::string text;
  std::vector<ImportNote> notes;  // What was left out or joined.
};

// Reading it back gives equal hosts but for what NCCL doesn't keep (Host::source, GPU models, host names that
// are no hash). THROWS Error(kInput) when the elements are too many, or a text is longer than NCCL reads.
NcclTopologyText write_nccl_topology(std::span<const Host> hosts,
                                     const NcclTopologyWriteOptions& options = {});
NcclTopologyText write_nccl_topology(const Host& host, const NcclTopologyWriteOptions& options = {});

}  // namespace orrery

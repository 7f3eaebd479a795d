#pragma once
// The machines of one job next to each other: which are alike, and what exactly is different on those that
// are not. One host with a card less, or one GPU without NVLinks, stalls or slows all of them, and NCCL
// doesn't compare them.

#include <cstdint>
#include <vector>

#include "topology/import/host.hpp"

namespace orrery {

struct MergedHosts {
  std::vector<Host> hosts;  // As given, each machine once.
  // Into `hosts`: those of one shape, the largest group first. Names, addresses, guids and ranks are no part
  // of the shape.
  std::vector<std::vector<std::int32_t>> groups;
  std::vector<ImportNote> notes;  // The imports', with the host in front; then duplicates and differences.
};

MergedHosts merge_hosts(std::vector<HostImport> imports);

}  // namespace orrery

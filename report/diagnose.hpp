#pragma once
// What is wrong with a machine or a job, as far as its files show: matrices, topology and graph files, logs,
// tables of nccl-tests. Each rule looks for one mistake that people really made, and prices it where it can:
// NCCL's own search runs on the machine as it is and on the same machine mended.

#include <span>
#include <vector>

#include "report/finding.hpp"
#include "topology/import/topology_file.hpp"

namespace orrery {

// All findings, dearest first.
std::vector<Finding> diagnose(std::span<const TopologyFile> files);

}  // namespace orrery

#pragma once
// What is timed to learn a machine's processors: small Programs, which the caller hands to an executor.

#include <cstdint>
#include <string>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/plan.hpp"

namespace orrery {

// Compute instructions, to be timed one by one on one rank alone. Buffers are placed.
struct ComputeSweep {
  std::string name;
  Graph graph;
  Program program;
  std::vector<RankId> ranks;  // One of each role.
};

// One transfer over and over, to be run; each instruction is a sample.
struct TransferSweep {
  std::string kind;  // As TimedTransfer::kind.
  std::int32_t ranks = 2;
  double bytes = 0;
  Graph graph;
  Program program;
};

// The kernels that a plan needs: one rank of each of its roles.
ComputeSweep plan_sweep(const std::string& name, const Graph& graph, const Plan& plan);

// A small decoder in several widths, lengths, micro-batches and tensor-parallel degrees, so that fits
// see every kernel of dense models in a range of sizes.
std::vector<ComputeSweep> general_sweeps();

// Messages and in-place collectives among 2, 4, … up to `most_ranks` ranks, 1 KiB to 4 MiB.
std::vector<TransferSweep> transfer_sweeps(std::int32_t most_ranks);

}  // namespace orrery

#pragma once
// A machine whose ranks run on its CPU, as a node type: its "devices" are slots, each a rank's share of the
// memory, and the slots together have the compute of the machine's cores. Nothing here looks at the machine
// that orrery runs on.

#include <cstdint>

#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct HostShape {
  std::int32_t cores = 2;                             // That ranks may use at once.
  std::int32_t slots = 8;                             // Ranks at most.
  std::int64_t memory_bytes = std::int64_t{4} << 30;  // Of the machine; each slot has an equal share.
  // Of one core. The default is no machine that was measured: 32 fp32 operations a clock (two fused
  // multiply-adds of 8 lanes, AVX2) at 2.5 GHz, and a desktop's or small virtual machine's share of DRAM.
  double peak_flops_per_s = 80e9;
  double memory_bytes_per_s = 10e9;
};

// A GpuType of Architecture::kHost that computes in fp32, whatever numbers are kept in, without NICs: ranks
// talk through the memory they share. A message is read and written, so it gets half the core's bandwidth.
// REQUIRES: cores, slots ≥ 1, rates > 0.
NodeType make_host_node(const HostShape& shape);

// What a core costs before anyone has calibrated it: assumed, and its provenance says so.
Profile assumed_host_profile(const GpuType& core);

}  // namespace orrery

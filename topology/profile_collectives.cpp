#include "topology/profile.hpp"

namespace orrery {

// Fitted to all-reduces, all-gathers, reduce-scatters and exchanges of two H200 without NVLS
// (docs/results/cuda-probe-h200x2.json), least squares of ln(predicted / measured) over 4 MiB to 1 GiB; the
// largest residual is 8 %. `call_s`: median over 4 to 256 KiB of what they took beyond NCCL's own latency.
// Parts of a step or of the whole, so that they carry over to other generations and group sizes; only one
// machine and groups of two were measured. The form (a ramp over the payload, ends per step) was chosen with
// published curves of larger groups in sight; their figures entered no fit.
CollectiveCosts default_collectives() {
  CollectiveCosts costs;
  costs.nccl = true;
  costs.call_s = 2.0e-6;
  costs.ramp = 0.052;
  // What is lost is the filling and draining of a channel's pipeline of chunks, whose size is the same on all
  // machines, so it goes by a channel's bytes: those two GPUs had 12 channels (their graph).
  costs.full_channel_bytes = (1 << 30) / 12.0;
  costs.ramp_halvings = 8;
  costs.all_reduce_ends = 2 * 0.04;  // Of two steps.
  costs.gather_ends = 0.325;
  costs.scatter_ends = 0.33;
  costs.all_to_all_slowdown = 1.075;
  // Each publisher's part (difference / √2) of how far two are apart who measured the same kind of machine,
  // rounded up: all-reduce on eight H100 with NVLS takes 4.0 and 4.7 ms at 1 GiB, on two 3.3 (ours) and 4.4
  // ms; 13 and 40 to 50 us below 64 KiB, where host and profiler time are part of some; two nodes of H100
  // reach a bus bandwidth of 339 to 479 GB/s. That the fixed and the moving part have errors of their own was
  // chosen after a first look at coverage; the figures were not.
  costs.node_bandwidth = {0.15, 0.2};
  costs.node_latency = {0.7, 0.5};
  costs.network_bandwidth = {0.25, 0.2};
  costs.network_latency = {0.7, 0.5};
  return costs;
}

}  // namespace orrery

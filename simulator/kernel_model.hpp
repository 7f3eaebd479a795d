#pragma once
// Time of one kernel on one GPU, from its shape: what libraries' kernels do, in few figures.
//
// Matmul. A tile of tm × tn of the result is one SM's work: start + 2·tm·tn·k / (SM's peak · efficiency). The
// tiles go in waves over the SMs; a last wave that is partly empty costs `quantisation` of what a full one
// does. Small results may be split along k. Beside that the tiles' operands come out of the cache, which is
// what small tiles pay, and the matrices out of memory. Of the shapes of tile and the splits that libraries
// have, the quickest counts.
//
// Attention, fused. A tile is 128 queries of one head against all keys they see (backward: 128 keys); per
// score it takes the products' time and the exponential's, which doesn't depend on the head dimension: so 64
// is slower per FLOP than 128. Backward has passes over memory before and after.
//
// The rest streams its bytes, from the cache where they fit.

#include <limits>

#include "model/program.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// A GPU slows its clocks to its power limit some milliseconds after dense work has begun: how long it has
// been at it when a kernel is timed.
inline constexpr double kSustained = std::numeric_limits<double>::infinity();

// Seconds from start to end on the device, without a launch. A GPU whose SMs aren't known has no waves; a
// kernel without shape (m = 0) has neither tiles nor waves. THROWS Error(kInfeasible) when the GPU has no
// arithmetic of the kernel's type.
double kernel_seconds(const Kernel& kernel, const GpuType& gpu, const Profile& profile,
                      double run_s = kSustained);

// Attention's score matrix, as far as it is worked out, is causal when the kernel's arithmetic is nearer to
// half of all scores than to all of them.
bool is_causal(const Kernel& kernel);

// Norms and softmaxes, unfused: memory-bound with a reduction over each row, which takes its time however few
// rows there are.
double row_kernel_seconds(double bytes, double row_elements, const GpuType& gpu, const Profile& profile);

struct TimeInterval {
  double lower_s = 0, upper_s = 0;
};
// 90 % of the probability for one kernel: both kinds of error, log-normal.
TimeInterval kernel_interval(double seconds, const CostError& error);
const CostError& kernel_error(KernelKind kind, const Profile& profile);

}  // namespace orrery

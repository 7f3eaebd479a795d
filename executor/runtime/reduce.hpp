#pragma once
// Sums over ranks, in one order whatever the timing.

#include "executor/runtime/bound.hpp"

namespace orrery::host {

// to = from[0] + from[1] + … in fp32, rounded once to the type of `to`. kSum adds in the order of positions,
// kTreeSum by the binary tree over positions whose left part is the largest power of two below their number
// (so that the sum over 2ⁿ equal blocks of leaves is that over all leaves), kMax takes the largest.
// REQUIRES: equal sizes and types. `to` may be one of `from`.
void reduce(const Reduce& sum, Workspace& workspace);

}  // namespace orrery::host

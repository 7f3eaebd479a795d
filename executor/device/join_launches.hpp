#pragma once
// Launches of one instruction that one kernel can do.

#include <functional>
#include <vector>

#include "executor/device/launch.hpp"

namespace orrery::device {

// Whether nobody beside the launches of this instruction sees what stands there.
using SeenNowhereElse = std::function<bool(const Array&)>;

// Zeroes of a sum that the next launch can overwrite are left out; a residual's addition joins the norm that
// reads it, the one whose gradient a norm's joins, and that to what dropout left. In order otherwise.
std::vector<Launch> join_launches(std::vector<Launch> launches, const SeenNowhereElse& private_to_it);

}  // namespace orrery::device

#pragma once
// Launches of one instruction that one kernel can do.

#include <vector>

#include "executor/device/launch.hpp"

namespace orrery::device {

// Memory that only the launches of one instruction see.
struct ScratchRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool has(const Array& array) const { return array.data >= begin && array.data < end; }
};

// Zeroes of a sum that the next launch can overwrite are left out; a residual's addition joins the norm that
// reads it, the one whose gradient a norm's joins, and that to what dropout left. In order otherwise.
std::vector<Launch> join_launches(std::vector<Launch> launches, const ScratchRange& scratch);

}  // namespace orrery::device

#pragma once
// Weight gradients on a stream of their own: in a backward pass nothing waits for them but what has their
// gradients or their memory, so that they fill the multiprocessors which other launches leave idle.

#include <cstddef>
#include <vector>

#include "executor/device/device.hpp"

namespace orrery::device {

// Memory that an instruction touches.
struct Touched {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool written = false;
};
using Footprint = std::vector<Touched>;

// Moves the instructions `moved` to a new stream. They and all others then wait for what they followed on
// the one stream if, and only if, both touch the same memory and one of the two writes it. Both lists: by
// instruction. REQUIRES: instructions in an issue order that is right for one stream.
void use_side_stream(DeviceStep& step, const std::vector<Footprint>& footprints,
                     const std::vector<bool>& moved);

}  // namespace orrery::device

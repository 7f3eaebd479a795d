#pragma once
// The loss and its gradient in one launch, which reads the logits once.

#include <cstddef>
#include <vector>

#include "executor/device/device.hpp"

namespace orrery::device {

// Memory that an instruction touches.
struct Touched {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};
using Footprint = std::vector<Touched>;

// Where an instruction takes the loss of logits and the next one, on its stream, begins with its gradient by
// them, the first does both, and waits for what the second waits for. `footprints`: by instruction. Not where
// the gradient's memory holds something for the first.
void join_loss(DeviceStep& step, const std::vector<Footprint>& footprints);

}  // namespace orrery::device

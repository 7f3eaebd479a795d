#pragma once
// The loss and its gradient in one launch, which reads the logits once.

#include <vector>

#include "executor/device/device.hpp"
#include "executor/device/side_stream.hpp"

namespace orrery::device {

// Where an instruction takes the loss of logits and the next one, on its stream, begins with its gradient by
// them, the first does both: it then touches what the second does (`footprints`: by instruction), and waits
// for what the second waits for. Not where the gradient's memory holds something for the first.
void join_loss(DeviceStep& step, std::vector<Footprint>& footprints);

}  // namespace orrery::device

#pragma once
// The loss and its gradient in one launch, which reads the logits once.

#include "executor/device/device.hpp"

namespace orrery::device {

// Where an instruction ends with the loss of logits and the next one, on its stream, begins with its gradient
// by them, the first does both, and waits for what the second waits for. Not where the gradient's memory
// holds something else of the loss.
void join_loss(DeviceStep& step);

}  // namespace orrery::device

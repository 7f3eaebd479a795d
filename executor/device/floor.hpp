#pragma once
// How far a step is from what its kernels need at least.

#include <string>
#include <vector>

#include "executor/device/device.hpp"
#include "model/program.hpp"

namespace orrery::device {

// Instructions of one label. The floor: of products and attention what they take alone, of all else what a
// copy takes that moves the bytes it has to.
struct FloorRow {
  std::string label;
  std::int64_t instructions = 0;
  double step_us = 0;   // In the step, all together.
  double alone_us = 0;  // The same launches, each alone.
  double floor_us = 0;
};

// Largest difference first. `spans`: by instruction.
std::vector<FloorRow> floor_rows(const Program& program, const Role& role, const DeviceStep& step,
                                 const std::vector<LaunchTime>& times, const std::vector<Span>& spans);

}  // namespace orrery::device

#pragma once
// A launch in words, for messages and tests.

#include <string>

#include "executor/device/launch.hpp"

namespace orrery::device {

// "gemm 16384x2048x5504", "norm 16384x2048 + residual": what it is and how large, without addresses.
std::string describe(const Launch& launch);

}  // namespace orrery::device

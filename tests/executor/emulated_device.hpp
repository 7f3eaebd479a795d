#pragma once
// A device that performs launches by plain loops on the host's memory: what lowering makes of a step can be
// run where there is no GPU. Of the kinds that decoders without experts need.

#include <memory>

#include "executor/device/device.hpp"

namespace orrery::test {

std::unique_ptr<device::Device> emulated_device();

}  // namespace orrery::test

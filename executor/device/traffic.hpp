#pragma once
// The bytes that a launch must at least move through the device's memory.

#include <cstdint>
#include <optional>

#include "executor/device/launch.hpp"

namespace orrery::device {

// Every input read once, every output written once; of a table only the rows that are picked, each time they
// are. Small arrays (a norm's weight, statistics of rows) count too. None: products and attention, which
// arithmetic limits.
std::optional<std::int64_t> memory_bytes(const Launch& launch);

}  // namespace orrery::device

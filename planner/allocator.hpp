#pragma once
// How much memory a role takes under different allocators, over one and the same lifetimes (the safe ones of
// memory_plan_lifetimes.hpp), steps repeated: what a memory plan is worth.

#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "planner/memory_plan.hpp"

namespace orrery {

// Over so many steps that the last is like all that follow (two).
struct AllocatorUse {
  std::string name;
  std::int64_t allocated_bytes = 0;  // The most that was asked for and not yet given back, as asked for.
  std::int64_t reserved_bytes = 0;   // The most held of the device.
  std::int64_t requests = 0;         // Allocations asked for in a later step.
  // Allocations by the device (cudaMalloc): while everything is new, persistent buffers included, and in a
  // later step.
  std::int64_t first_device_calls = 0, later_device_calls = 0;
  double fragmentation() const;  // 1 − allocated / reserved, at the peaks.
};

// Each buffer its own: cudaMalloc before its first toucher and cudaFree at the step's end, when the device
// is idle, so that nothing is reused within a step. Sizes are rounded to 512 bytes, the sum to pages of 2
// MiB.
AllocatorUse use_of_own_memory(const Role& role, const ExecutionOrder& order);
// CachingAllocator, as frameworks use it: one pool for all streams, a block returned once all streams are
// done with it (PyTorch's record_stream).
AllocatorUse use_of_caching(const Role& role, const ExecutionOrder& order);
// The arena of a plan: one cudaMalloc, no requests while running.
AllocatorUse use_of_plan(const Role& role, const ExecutionOrder& order, const MemoryPlan& plan);
// All three, in that order.
std::vector<AllocatorUse> compare_allocators(const Program& program, RoleId role);

}  // namespace orrery

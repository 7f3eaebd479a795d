#pragma once
// Lifetimes in issue order that are safe to share memory by, whatever the timing.

#include <cstdint>
#include <vector>

#include "model/program.hpp"
#include "planner/memory_plan_order.hpp"

namespace orrery {

// A transient buffer is busy in [first, end) of the issue order and, where its last touchers may still run
// when the next step begins, in [0, wrap_end) too. The promise: of two buffers that are never busy together,
// each has ended before the other begins, in one step and from any step to any later one.
//
// `end` is where the order of execution catches up: from there on, every instruction that begins a buffer
// knows that this one has ended. So the partial order is rounded up to intervals, which allocators can work
// with: a buffer never shares with one that is begun in between, even if that one would know.
struct SafeLifetime {
  std::int32_t first = -1;  // −1: persistent, never touched, or in another's memory (memory_owners).
  std::int32_t end = -1;
  std::int32_t wrap_end = 0;
  // Its own next use may begin before this step's has ended: the Program lacks an order that no placement can
  // give.
  bool unordered = false;
};

std::vector<SafeLifetime> safe_lifetimes(const Role& role, const ExecutionOrder& order);  // By buffer.

// As they are in issue order: what a device with a single stream would need.
std::vector<SafeLifetime> issue_lifetimes(const Role& role);

// The most that is busy at once, each buffer rounded up to `alignment_bytes`; without persistent buffers.
std::int64_t busy_bytes(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                        std::int64_t alignment_bytes);

}  // namespace orrery

#include "planner/allocator.hpp"

#include <algorithm>

#include "planner/allocator_caching.hpp"
#include "planner/memory_plan_lifetimes.hpp"
#include "planner/memory_plan_space.hpp"

namespace orrery {
namespace {

constexpr std::size_t kSteps = 2;
constexpr std::int64_t kRounding = 512;
constexpr std::int64_t kPage = std::int64_t{2} << 20;

// What an allocator is asked over the steps. Calls `allocate` and `free` with buffers: persistent ones first,
// then before each instruction what has ended is freed and what begins is allocated; `step_begins` before
// each step.
template <class Allocate, class Free, class StepBegins>
void replay(const Role& role, const std::vector<SafeLifetime>& lifetimes, const Allocate& allocate,
            const Free& free, const StepBegins& step_begins) {
  const std::size_t places = role.instructions.size();
  std::vector<std::vector<std::size_t>> begun(places), ended((kSteps + 1) * places + 1);
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    if (role.buffers[b].bytes == 0) continue;
    if (role.buffers[b].persistent) allocate(b);
    if (lifetimes[b].first < 0) continue;
    begun[static_cast<std::size_t>(lifetimes[b].first)].push_back(b);
    const std::int32_t wrap = lifetimes[b].wrap_end;
    const std::size_t end =
        wrap > 0 ? places + static_cast<std::size_t>(wrap) : static_cast<std::size_t>(lifetimes[b].end);
    for (std::size_t step = 0; step < kSteps; ++step) ended[step * places + end].push_back(b);
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    step_begins();
    for (std::size_t place = 0; place < places; ++place) {
      for (const std::size_t b : ended[step * places + place]) free(b);
      for (const std::size_t b : begun[place]) allocate(b);
    }
  }
}

// The use that all allocators have in common, and how much one holds at most: `held` says so at any time.
template <class Allocate, class Free, class Calls, class Held>
AllocatorUse measure(std::string name, const Role& role, const std::vector<SafeLifetime>& lifetimes,
                     const Allocate& allocate, const Free& free, const Calls& calls, const Held& held) {
  AllocatorUse use;
  use.name = std::move(name);
  std::int64_t live = 0, calls_before = 0;
  replay(
      role, lifetimes,
      [&](std::size_t b) {
        allocate(b);
        live += role.buffers[b].bytes;
        ++use.requests;
        use.allocated_bytes = std::max(use.allocated_bytes, live);
        use.reserved_bytes = std::max(use.reserved_bytes, held());
      },
      [&](std::size_t b) {
        free(b);
        live -= role.buffers[b].bytes;
      },
      [&] {
        use.requests = 0;
        calls_before = calls();
      });
  use.first_device_calls = calls_before;
  use.later_device_calls = calls() - calls_before;
  return use;
}

}  // namespace

double AllocatorUse::fragmentation() const {
  return reserved_bytes == 0
             ? 0.0
             : 1.0 - static_cast<double>(allocated_bytes) / static_cast<double>(reserved_bytes);
}

AllocatorUse use_of_own_memory(const Role& role, const ExecutionOrder& order) {
  std::vector<SafeLifetime> lifetimes = safe_lifetimes(role, order);
  std::int64_t persistent = 0, transient = 0, buffers = 0, kept = 0;
  for (std::size_t b = 0; b < lifetimes.size(); ++b) {
    const Buffer& buffer = role.buffers[b];
    if (buffer.bytes == 0 || (!buffer.persistent && lifetimes[b].first < 0)) continue;
    (buffer.persistent ? persistent : transient) += aligned_bytes(buffer.bytes, kRounding);
    ++(buffer.persistent ? kept : buffers);
  }
  const auto nothing = [](std::size_t) {};
  AllocatorUse use = measure(
      "own memory", role, lifetimes, nothing, nothing, [] { return std::int64_t{0}; },
      [] { return std::int64_t{0}; });
  use.reserved_bytes = aligned_bytes(persistent + transient, kPage);
  use.first_device_calls = kept + buffers;
  use.later_device_calls = buffers;
  return use;
}

AllocatorUse use_of_caching(const Role& role, const ExecutionOrder& order) {
  CachingAllocator allocator;
  // By buffer: its blocks, the oldest first; two where a use lasts into the next one's.
  std::vector<std::vector<CachingAllocator::Block>> blocks(role.buffers.size());
  return measure(
      "caching", role, safe_lifetimes(role, order),
      [&](std::size_t b) { blocks[b].push_back(allocator.allocate(role.buffers[b].bytes)); },
      [&](std::size_t b) {
        allocator.free(blocks[b].front());
        blocks[b].erase(blocks[b].begin());
      },
      [&] { return allocator.device_calls(); }, [&] { return allocator.reserved_bytes(); });
}

AllocatorUse use_of_plan(const Role& role, const ExecutionOrder& order, const MemoryPlan& plan) {
  const auto nothing = [](std::size_t) {};
  AllocatorUse use = measure(
      "memory plan", role, safe_lifetimes(role, order), nothing, nothing, [] { return std::int64_t{0}; },
      [&] { return plan.arena_bytes; });
  use.requests = 0;
  use.first_device_calls = plan.arena_bytes > 0 ? 1 : 0;
  return use;
}

std::vector<AllocatorUse> compare_allocators(const Program& program, RoleId role) {
  const Role& its = program.roles[role.index()];
  const ExecutionOrder order(program, role);
  return {use_of_own_memory(its, order), use_of_caching(its, order),
          use_of_plan(its, order, plan_memory(its, order))};
}

}  // namespace orrery

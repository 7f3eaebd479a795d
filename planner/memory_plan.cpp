#include "planner/memory_plan.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

#include "base/error.hpp"
#include "planner/memory.hpp"
#include "planner/memory_plan_lifetimes.hpp"
#include "planner/memory_plan_place.hpp"
#include "planner/memory_plan_space.hpp"

namespace orrery {
namespace {

void check(const Role& role, const MemoryPlanOptions& options) {
  const std::int64_t alignment = options.alignment_bytes;
  if (alignment < 1 || alignment > (1 << 30) || !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    fail(ErrorKind::kInput, "memory plan: an alignment of {} bytes; expected a power of two from 1 to 2^30",
         alignment);
  }
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t left = kMost;
  for (const Buffer& buffer : role.buffers) {
    if (buffer.bytes >= left - alignment) {
      fail(ErrorKind::kInput,
           "role '{}': its buffers add up to more than 2^62 bytes; expected sizes that a device could have",
           role.name);
    }
    left -= aligned_bytes(buffer.bytes, alignment);
  }
}

// Persistent buffers one behind the other, those of a category together: collectives over the gradients or
// parameters of consecutive layers find them side by side.
std::int64_t place_persistent(const Role& role, std::int64_t alignment, std::vector<std::int64_t>& offsets) {
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    if (role.buffers[b].persistent) order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return role.buffers[a].category < role.buffers[b].category;
  });
  std::int64_t end = 0;
  for (const std::size_t b : order) {
    offsets[b] = end;
    end += aligned_bytes(role.buffers[b].bytes, alignment);
  }
  return end;
}

}  // namespace

double MemoryPlan::gap() const {
  return bound_bytes == 0 ? 0.0
                          : static_cast<double>(arena_bytes - bound_bytes) / static_cast<double>(bound_bytes);
}

MemoryPlan plan_memory(const Role& role, const ExecutionOrder& order, const MemoryPlanOptions& options) {
  check(role, options);
  const std::vector<SafeLifetime> safe = safe_lifetimes(role, order);
  MemoryPlan plan;
  plan.offsets.assign(role.buffers.size(), -1);
  plan.persistent_bytes = place_persistent(role, options.alignment_bytes, plan.offsets);
  plan.issue_bytes = plan.persistent_bytes + busy_bytes(role, issue_lifetimes(role), options.alignment_bytes);
  plan.bound_bytes = plan.persistent_bytes + busy_bytes(role, safe, options.alignment_bytes);
  const PlacedBuffers transient = place_buffers(role, safe, options.alignment_bytes);
  const std::vector<std::size_t> owners = memory_owners(role);
  plan.arena_bytes = plan.persistent_bytes + transient.bytes;
  for (std::size_t b = 0; b < safe.size(); ++b) {
    const std::int64_t offset = transient.offsets[owners[b]];
    if (offset >= 0) plan.offsets[b] = plan.persistent_bytes + offset;
    if (safe[b].unordered) plan.unordered.emplace_back(static_cast<std::int64_t>(b));
  }
  return plan;
}

MemoryPlan plan_memory(const Role& role, const MemoryPlanOptions& options) {
  return plan_memory(role, ExecutionOrder(role), options);
}

MemoryPlan plan_memory(const Program& program, RoleId role, const MemoryPlanOptions& options) {
  return plan_memory(program.roles[role.index()], ExecutionOrder(program, role), options);
}

void apply(const MemoryPlan& plan, Role& role) {
  assert(plan.offsets.size() == role.buffers.size());
  for (std::size_t b = 0; b < role.buffers.size(); ++b) role.buffers[b].offset = plan.offsets[b];
}

}  // namespace orrery

#include "planner/memory_plan.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "planner/memory_plan_lifetimes.hpp"
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

// Buffers of one size, in the order in which they are begun. Each takes the place that one before it left
// last and that is still free; only if none of a few is, all addresses are searched. Micro-batches repeat, so
// searches are about as many as places, and places as buffers that live at once.
class SizeClass {
 public:
  SizeClass(std::int64_t bytes, AddressSpace& space) : bytes_(bytes), space_(space) {}

  std::int64_t place(const SafeLifetime& lifetime) {
    const std::vector<BusyInterval> busy = busy_intervals(lifetime);
    const std::int64_t offset = find(lifetime, busy);
    space_.take(offset, bytes_, busy);
    left_.emplace(lifetime.end, offset);
    return offset;
  }

 private:
  std::int64_t find(const SafeLifetime& lifetime, const std::vector<BusyInterval>& busy) {
    auto candidate = left_.upper_bound({lifetime.first, space_.bytes()});
    for (int tries = 0; tries < kTries && candidate != left_.begin(); ++tries) {
      --candidate;
      if (space_.is_free(candidate->second, bytes_, busy)) {
        const std::int64_t offset = candidate->second;
        left_.erase(candidate);
        return offset;
      }
    }
    return space_.lowest_fit(bytes_, busy);
  }

  static constexpr int kTries = 8;
  std::int64_t bytes_;
  AddressSpace& space_;
  std::set<std::pair<std::int32_t, std::int64_t>> left_;  // When a place is left, and its offset.
};

// Largest first, each at the lowest gap that is free for its lifetime: what is small fits between what is
// large, hardly the other way round. The greedy-by-size order of Pisarchyk and Lee (2020), arXiv:2001.03288.
std::int64_t place_transient(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                             std::int64_t alignment, std::int64_t base, std::vector<std::int64_t>& offsets) {
  std::map<std::int64_t, std::vector<std::size_t>, std::greater<>> by_size;
  for (std::size_t b = 0; b < lifetimes.size(); ++b) {
    if (lifetimes[b].first < 0) continue;
    offsets[b] = base;
    if (role.buffers[b].bytes > 0) by_size[aligned_bytes(role.buffers[b].bytes, alignment)].push_back(b);
  }
  AddressSpace space;
  for (auto& [bytes, buffers] : by_size) {
    std::stable_sort(buffers.begin(), buffers.end(),
                     [&](std::size_t a, std::size_t b) { return lifetimes[a].first < lifetimes[b].first; });
    SizeClass places(bytes, space);
    for (const std::size_t b : buffers) offsets[b] = base + places.place(lifetimes[b]);
  }
  return space.bytes();
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
  plan.arena_bytes = plan.persistent_bytes + place_transient(role, safe, options.alignment_bytes,
                                                             plan.persistent_bytes, plan.offsets);
  for (std::size_t b = 0; b < safe.size(); ++b) {
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

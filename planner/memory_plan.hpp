#pragma once
// Where each buffer of a role lies in its rank's arena: one allocation a rank, made once, and no allocator at
// run time. Buffers share addresses when the order of execution (streams, dependencies, messages; see
// memory_plan_order.hpp) keeps their uses apart, so that the executor may run the offsets with any timing.
// One that is in place of another lies where that one does.

#include <cstdint>
#include <string>
#include <vector>

#include "model/program.hpp"
#include "planner/memory_plan_order.hpp"

namespace orrery {

struct MemoryPlanOptions {
  // Of every offset; a power of two, at most 2³⁰. 512 is what PyTorch's allocator and cudaMalloc (256) keep:
  // enough for the widest loads and TMA (16 and 128 bytes), and no two buffers share a cache line (128) or a
  // sector.
  std::int64_t alignment_bytes = 512;
};

struct MemoryPlan {
  std::vector<std::int64_t> offsets;  // By buffer; −1: never touched and not persistent, has no memory.
  std::int64_t persistent_bytes = 0;  // The first region: persistent buffers, by category.
  std::int64_t arena_bytes = 0;
  // The most that is live at once, each buffer rounded up to the alignment and persistent ones included: in
  // issue order, as if all streams were one, and by safe lifetimes. The difference is what overlap of streams
  // costs; no placement by safe lifetimes is smaller than the second.
  std::int64_t issue_bytes = 0;
  std::int64_t bound_bytes = 0;
  // Buffers whose use in the next step may begin before this step's has ended: the Program has to be given an
  // order
  // (`after @prev`), no placement helps.
  std::vector<BufferId> unordered;

  // How much larger the arena is than it has to be, of the latter.
  double gap() const;
};

// From what the role alone knows: every message sent stays live until the role's own dependencies say
// otherwise. THROWS Error(kInput) for an alignment out of range and for buffers that add up to 2⁶² bytes or
// more.
MemoryPlan plan_memory(const Role& role, const MemoryPlanOptions& options = {});
// From what messages tell besides: with pipelines this is far smaller. REQUIRES: verify(program) is empty.
MemoryPlan plan_memory(const Program& program, RoleId role, const MemoryPlanOptions& options = {});
MemoryPlan plan_memory(const Role& role, const ExecutionOrder& order, const MemoryPlanOptions& options = {});

// Writes the offsets into the role's buffers. REQUIRES: the plan was made for it.
void apply(const MemoryPlan& plan, Role& role);

// What is wrong with a plan, by another way than it was made: buffers outside the arena or their region, off
// the alignment or not where they are in place of another, and buffers that share bytes although the order of
// execution doesn't keep them apart, each with the names of both; then the unordered ones. In time about
// linear in the operands.
std::vector<std::string> verify(const MemoryPlan& plan, const Program& program, RoleId role,
                                const MemoryPlanOptions& options = {});

}  // namespace orrery

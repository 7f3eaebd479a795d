#pragma once
// Static placement of the transient buffers of a role: the largest first, each at the lowest gap that is free
// during its lifetime, since what is small fits between what is large and hardly the other way round (greedy
// by size, as Pisarchyk and Lee 2020, arXiv:2001.03288). Offsets begin at 0.

#include <cstdint>
#include <vector>

#include "model/program.hpp"
#include "planner/memory_plan_lifetimes.hpp"

namespace orrery {

struct PlacedBuffers {
  std::vector<std::int64_t> offsets;  // By buffer; −1: not placed, as its lifetime has no first toucher.
  std::int64_t bytes = 0;             // Up to the end of the last one.
};

// By comparing each buffer with all that live while it does: for any sizes, in time about linear in such
// pairs.
PlacedBuffers place_by_pairs(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                             std::int64_t alignment_bytes);

// By keeping account of addresses, where buffers of one size take over each other's places first. For few
// sizes that return again and again, as micro-batches make them: time is about linear in the buffers, however
// many live at once. With as many sizes as buffers it is no better than quadratic.
PlacedBuffers place_by_address(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                               std::int64_t alignment_bytes);

// By pairs while there are few enough of them, else by address. Chains (Buffer::behind) whose sizes are
// multiples of the alignment, but for the last, are placed as one buffer; others as if they were none.
PlacedBuffers place_buffers(const Role& role, const std::vector<SafeLifetime>& lifetimes,
                            std::int64_t alignment_bytes);

}  // namespace orrery

#pragma once
// What each member of a group brings to an exchange, or takes from it, as stretches of elements: worked out
// from where tensors lie, the same on every member.

#include <cstdint>
#include <vector>

#include "executor/runtime/owned.hpp"
#include "executor/runtime/runs.hpp"

namespace orrery::device {

// Elements that move from one array of a list to the array of the same number in another list.
struct Stretch {
  std::int32_t array = 0;
  std::int64_t to = 0, from = 0, count = 0;
  bool operator==(const Stretch&) const = default;
};
// One member's, in the order in which they lie when they are packed.
using Slot = std::vector<Stretch>;

std::int64_t elements(const Slot& slot);

// The member's part of the concatenation of arrays of these lengths, in place.
Slot own_slot(const std::vector<std::int64_t>& lengths, std::int64_t members, std::int64_t member);

// By source: the elements of `wanted` (to) that are taken from there (from), each from the first that has it.
std::vector<std::vector<host::Run>> first_sources(const host::Shard& wanted,
                                                  const std::vector<const host::Shard*>& sources);

// `into` maps wanted elements (from) to a target (to), `runs` a source (from) to the wanted ones (to): source
// to target, in the order of `runs`.
Slot through(std::vector<host::Run> into, const std::vector<host::Run>& runs);

// Whether the slots have as many stretches each, of which those of one number are as long and lie one after
// the other, by member, where `end` says.
bool aligned(const std::vector<Slot>& slots, std::int64_t Stretch::* end);

}  // namespace orrery::device

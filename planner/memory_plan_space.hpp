#pragma once
// The addresses of an arena and when each of them is in use.

#include <cstdint>
#include <vector>

#include "planner/memory_plan_lifetimes.hpp"

namespace orrery {

// Half-open, in places of the issue order.
struct BusyInterval {
  std::int32_t begin = 0, end = 0;
};
// None where the lifetime has no first toucher; else one or two, in order and apart.
std::vector<BusyInterval> busy_intervals(const SafeLifetime& lifetime);

// REQUIRES: bytes at most 2⁶² and alignment_bytes a power of two, at most 2³⁰.
std::int64_t aligned_bytes(std::int64_t bytes, std::int64_t alignment_bytes);

class AddressSpace {
 public:
  // REQUIRES here and below: bytes > 0.
  bool is_free(std::int64_t offset, std::int64_t bytes, const std::vector<BusyInterval>& busy) const;
  // The lowest offset at which so much is free during all of `busy`.
  std::int64_t lowest_fit(std::int64_t bytes, const std::vector<BusyInterval>& busy) const;
  // REQUIRES: is_free.
  void take(std::int64_t offset, std::int64_t bytes, const std::vector<BusyInterval>& busy);
  std::int64_t bytes() const { return segments_.empty() ? 0 : segments_.back().end; }

 private:
  // Addresses that are in use at the same times; in order, without gaps, from 0 on.
  struct Segment {
    std::int64_t end = 0;
    std::vector<BusyInterval> busy;  // In order; those that touch are one.
  };
  std::size_t segment_at(std::int64_t offset) const;
  void split_at(std::int64_t offset);
  std::vector<Segment> segments_;
};

}  // namespace orrery

#include "planner/memory_plan_space.hpp"

#include <algorithm>
#include <cassert>

namespace orrery {
namespace {

bool is_free(const std::vector<BusyInterval>& used, const std::vector<BusyInterval>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const BusyInterval& interval) {
    const auto next = std::partition_point(
        used.begin(), used.end(), [&](const BusyInterval& other) { return other.end <= interval.begin; });
    return next == used.end() || next->begin >= interval.end;
  });
}

void insert(std::vector<BusyInterval>& used, BusyInterval interval) {
  auto next = std::partition_point(used.begin(), used.end(),
                                   [&](const BusyInterval& other) { return other.end < interval.begin; });
  if (next != used.end() && next->end == interval.begin) {
    next->end = interval.end;
    const auto after = next + 1;
    if (after != used.end() && after->begin == interval.end) {
      next->end = after->end;
      used.erase(after);
    }
  } else if (next != used.end() && next->begin == interval.end) {
    next->begin = interval.begin;
  } else {
    used.insert(next, interval);
  }
}

}  // namespace

std::vector<BusyInterval> busy_intervals(const SafeLifetime& lifetime) {
  if (lifetime.first < 0) return {};
  if (lifetime.wrap_end <= 0) return {{lifetime.first, lifetime.end}};
  if (lifetime.wrap_end >= lifetime.first) return {{0, std::max(lifetime.end, lifetime.wrap_end)}};
  return {{0, lifetime.wrap_end}, {lifetime.first, lifetime.end}};
}

std::int64_t aligned_bytes(std::int64_t bytes, std::int64_t alignment_bytes) {
  return (bytes + alignment_bytes - 1) & ~(alignment_bytes - 1);
}

std::size_t AddressSpace::segment_at(std::int64_t offset) const {
  const auto found = std::partition_point(segments_.begin(), segments_.end(),
                                          [&](const Segment& segment) { return segment.end <= offset; });
  return static_cast<std::size_t>(found - segments_.begin());
}

bool AddressSpace::is_free(std::int64_t offset, std::int64_t bytes,
                           const std::vector<BusyInterval>& busy) const {
  for (std::size_t s = segment_at(offset); s < segments_.size(); ++s) {
    if (!orrery::is_free(segments_[s].busy, busy)) return false;
    if (segments_[s].end >= offset + bytes) break;
  }
  return true;
}

std::int64_t AddressSpace::lowest_fit(std::int64_t bytes, const std::vector<BusyInterval>& busy) const {
  std::int64_t begin = 0;
  for (const Segment& segment : segments_) {
    if (!orrery::is_free(segment.busy, busy)) {
      begin = segment.end;
    } else if (segment.end - begin >= bytes) {
      break;
    }
  }
  return begin;
}

void AddressSpace::split_at(std::int64_t offset) {
  if (offset == 0 || offset == bytes()) return;
  const std::size_t at = segment_at(offset);
  const std::int64_t begin = at == 0 ? 0 : segments_[at - 1].end;
  if (begin == offset) return;
  Segment lower{offset, segments_[at].busy};
  segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(at), std::move(lower));
}

void AddressSpace::take(std::int64_t offset, std::int64_t bytes, const std::vector<BusyInterval>& busy) {
  assert(is_free(offset, bytes, busy) && offset <= this->bytes());
  if (offset + bytes > this->bytes()) segments_.push_back({offset + bytes, {}});
  split_at(offset);
  split_at(offset + bytes);
  for (std::size_t s = segment_at(offset); s < segments_.size() && segments_[s].end <= offset + bytes; ++s) {
    for (const BusyInterval& interval : busy) insert(segments_[s].busy, interval);
  }
}

}  // namespace orrery

#include "base/interval_set.hpp"

#include <algorithm>
#include <cstddef>

namespace orrery {

IntervalSet::IntervalSet(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& interval) { return interval.end <= interval.start; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  for (const Interval& interval : intervals) {
    if (!intervals_.empty() && interval.start <= intervals_.back().end) {
      intervals_.back().end = std::max(intervals_.back().end, interval.end);
    } else {
      intervals_.push_back(interval);
    }
  }
}

SimTime IntervalSet::length() const {
  SimTime total;
  for (const Interval& interval : intervals_) total += interval.end - interval.start;
  return total;
}

IntervalSet IntervalSet::united(const IntervalSet& other) const {
  std::vector<Interval> all = intervals_;
  all.insert(all.end(), other.intervals_.begin(), other.intervals_.end());
  return IntervalSet(std::move(all));
}

IntervalSet IntervalSet::intersected(const IntervalSet& other) const {
  IntervalSet result;
  std::size_t i = 0, j = 0;
  while (i < intervals_.size() && j < other.intervals_.size()) {
    const Interval& a = intervals_[i];
    const Interval& b = other.intervals_[j];
    const Interval both{std::max(a.start, b.start), std::min(a.end, b.end)};
    if (both.start < both.end) result.intervals_.push_back(both);
    (a.end < b.end ? i : j) += 1;
  }
  return result;
}

IntervalSet IntervalSet::without(const IntervalSet& other) const {
  IntervalSet result;
  std::size_t j = 0;
  for (const Interval& interval : intervals_) {
    SimTime start = interval.start;
    while (j < other.intervals_.size() && other.intervals_[j].end <= start) ++j;
    for (std::size_t k = j; k < other.intervals_.size() && other.intervals_[k].start < interval.end; ++k) {
      if (other.intervals_[k].start > start) {
        result.intervals_.push_back({start, other.intervals_[k].start});
      }
      start = std::max(start, other.intervals_[k].end);
    }
    if (start < interval.end) result.intervals_.push_back({start, interval.end});
  }
  return result;
}

}  // namespace orrery

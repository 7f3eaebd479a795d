#pragma once
// Unions of half-open time intervals, kept sorted and disjoint.

#include <vector>

#include "base/sim_time.hpp"

namespace orrery {

struct Interval {
  SimTime start, end;
  bool operator==(const Interval&) const = default;
};

class IntervalSet {
 public:
  IntervalSet() = default;
  // Any order, overlapping or empty ones allowed.
  explicit IntervalSet(std::vector<Interval> intervals);

  SimTime length() const;
  const std::vector<Interval>& intervals() const { return intervals_; }

  IntervalSet united(const IntervalSet& other) const;
  IntervalSet intersected(const IntervalSet& other) const;
  // What of this is not in `other`.
  IntervalSet without(const IntervalSet& other) const;

 private:
  std::vector<Interval> intervals_;
};

}  // namespace orrery

#include "base/interval_set.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <bitset>

#include "base/random.hpp"

using namespace orrery;

namespace {

Interval span(std::int64_t start, std::int64_t end) { return {SimTime{start}, SimTime{end}}; }

constexpr std::size_t kPoints = 64;
using Points = std::bitset<kPoints>;

// The obvious model of a set of half-open intervals over 0 … 63: one bit per picosecond.
Points points_of(const std::vector<Interval>& intervals) {
  Points points;
  for (const Interval& interval : intervals) {
    for (std::int64_t t = interval.start.picoseconds; t < interval.end.picoseconds; ++t) {
      points.set(static_cast<std::size_t>(t));
    }
  }
  return points;
}

std::vector<Interval> random_intervals(Random& random) {
  std::vector<Interval> intervals(static_cast<std::size_t>(random.between(0, 8)));
  for (Interval& interval : intervals) {
    const std::int64_t start = random.between(0, kPoints - 1);
    interval = span(start, std::min<std::int64_t>(kPoints, start + random.between(0, 12)));
  }
  return intervals;
}

bool is_sorted_and_disjoint(const IntervalSet& set) {
  const auto& intervals = set.intervals();
  return std::all_of(intervals.begin(), intervals.end(), [](const Interval& i) { return i.start < i.end; }) &&
         std::adjacent_find(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
           return b.start <= a.end;
         }) == intervals.end();
}

}  // namespace

TEST_CASE("overlapping, touching, empty and unordered intervals become one sorted union", "[base]") {
  const IntervalSet set({span(10, 20), span(5, 7), span(20, 25), span(6, 9), span(30, 30)});
  CHECK(set.intervals() == std::vector<Interval>{span(5, 9), span(10, 25)});
  CHECK(set.length() == SimTime{19});
  CHECK(IntervalSet().length() == SimTime{0});
}

TEST_CASE("exposed communication is communication without compute", "[base]") {
  // Communication 0..10 and 20..30, compute 5..25: 0..5 and 25..30 are exposed.
  const IntervalSet communication({span(0, 10), span(20, 30)});
  const IntervalSet compute({span(5, 25)});
  CHECK(communication.without(compute).intervals() == std::vector<Interval>{span(0, 5), span(25, 30)});
  CHECK(communication.intersected(compute).intervals() == std::vector<Interval>{span(5, 10), span(20, 25)});
  CHECK(communication.united(compute).intervals() == std::vector<Interval>{span(0, 30)});
}

TEST_CASE("unions, intersections and differences agree with sets of points", "[base]") {
  Random random(7);
  for (int trial = 0; trial < 500; ++trial) {
    const auto a_list = random_intervals(random), b_list = random_intervals(random);
    const IntervalSet a(a_list), b(b_list);
    const Points a_points = points_of(a_list), b_points = points_of(b_list);
    CAPTURE(trial);
    CHECK(points_of(a.intervals()) == a_points);
    CHECK(points_of(a.united(b).intervals()) == (a_points | b_points));
    CHECK(points_of(a.intersected(b).intervals()) == (a_points & b_points));
    CHECK(points_of(a.without(b).intervals()) == (a_points & ~b_points));
    CHECK(a.length() == SimTime{static_cast<std::int64_t>(a_points.count())});
    for (const IntervalSet& set : {a, a.united(b), a.intersected(b), a.without(b)}) {
      CHECK(is_sorted_and_disjoint(set));
    }
  }
}

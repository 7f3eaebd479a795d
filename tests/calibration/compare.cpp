// Predicted and measured timelines, by hand.

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "calibration/compare.hpp"
#include "calibration/compare_report.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

RecordedSpan span(const char* name, double start_s, double end_s) {
  RecordedSpan span;
  span.stream = "compute";
  span.first = span.last = name;
  span.label = std::string(name).substr(0, 1);
  span.purpose = "forward";
  span.kind = "matmul";
  span.start_s = span.ready_s = start_s;
  span.end_s = end_s;
  return span;
}

RecordedSpan run_of(const char* first, const char* last, double start_s, double end_s) {
  RecordedSpan run = span(first, start_s, end_s);
  run.last = last;
  run.label = run.purpose = run.kind = "";
  return run;
}

TimelineRecord record(bool measured, double step_s, std::vector<RecordedClass> classes) {
  TimelineRecord record;
  record.program = "p";
  record.program_hash = "0123456789abcdef";
  record.measured = measured;
  record.step_time_s = step_s;
  record.classes = std::move(classes);
  return record;
}

// f.m0 and f.m1 take 1 s each, b.m0 2 s.
TimelineRecord predicted() {
  return record(false, 4, {{"stage0", {0, 1}, {span("f.m0", 0, 1), span("f.m1", 1, 2), span("b.m0", 2, 4)}}});
}

}  // namespace

TEST_CASE("equal timelines have no error", "[compare]") {
  const TimelineComparison same = compare_timelines(predicted(), predicted());
  CHECK(same.step.error() == 0);
  CHECK(same.unmatched.empty());
  CHECK(same.single_s == 8);  // Two ranks of 4 s.
  CHECK(same.run_s == 0);
  for (const ComparedOp& op : same.ops) CHECK(op.busy.error() == 0);
  CHECK_FALSE(exceeds(same, 0));
}

TEST_CASE("errors are summed by op and by rank, the largest first", "[compare]") {
  // Rank 0: f 1.5 and 1 s, b 2 s. Rank 1: as predicted, but b took 4 s.
  const TimelineRecord measured =
      record(true, 6,
             {{"stage0", {0}, {span("f.m0", 0, 1.5), span("f.m1", 1.5, 2.5), span("b.m0", 2.5, 4.5)}},
              {"stage0", {1}, {span("f.m0", 0, 1), span("f.m1", 1, 2), span("b.m0", 2, 6)}}});
  const TimelineComparison found = compare_timelines(predicted(), measured);
  CHECK(found.step.error() == Approx(4.0 / 6 - 1));
  REQUIRE(found.ops.size() == 2);
  CHECK(found.ops[0].label == "b");  // 4 s predicted, 2 + 4 measured.
  CHECK(found.ops[0].busy.predicted_s == 4);
  CHECK(found.ops[0].busy.measured_s == 6);
  CHECK(found.ops[1].count == 4);  // 4 s predicted, 2.5 + 2 measured.
  CHECK(found.ops[1].busy.measured_s == 4.5);
  CHECK(found.ranks[0].rank == 1);
  CHECK(found.ranks[0].busy.measured_s == 6);
  CHECK(exceeds(found, 0.3));
  CHECK_FALSE(exceeds(found, 0.34));
}

TEST_CASE("a coarser measurement is held against the sum of the finer side", "[compare]") {
  // Both forwards in one span of 2.6 s; b alone for 1.6 s.
  const TimelineRecord measured =
      record(true, 4, {{"stage0", {0, 1}, {run_of("f.m0", "f.m1", 0, 2.6), span("b.m0", 2.6, 4.2)}}});
  for (const bool swapped : {false, true}) {
    const TimelineComparison found =
        swapped ? compare_timelines(measured, predicted()) : compare_timelines(predicted(), measured);
    CHECK(found.unmatched.empty());
    REQUIRE(found.ops.size() == 2);
    CHECK(found.ops[0].label == "f.m0 … f.m1");
    CHECK((swapped ? found.ops[0].busy.measured_s : found.ops[0].busy.predicted_s) == 4);
    CHECK((swapped ? found.ops[0].busy.predicted_s : found.ops[0].busy.measured_s) == Approx(5.2));
    CHECK(found.run_s == Approx(swapped ? 4 : 5.2));
    CHECK(found.single_s == Approx(swapped ? 4 : 3.2));
  }
}

TEST_CASE("what only one side has is listed, and the rest still compared", "[compare]") {
  TimelineRecord measured = predicted();
  measured.classes[0].spans[1] = span("x.m0", 1, 2);  // In place of f.m1.
  measured.classes[0].ranks = {0, 2};
  const TimelineComparison found = compare_timelines(predicted(), measured);
  REQUIRE(found.unmatched.size() == 2);
  CHECK(found.unmatched[0].name == "f.m1");
  CHECK(found.unmatched[0].predicted);
  CHECK(found.unmatched[1].name == "x.m0");
  CHECK_FALSE(found.unmatched[1].predicted);
  CHECK(found.only_predicted_ranks == std::vector<std::int32_t>{1});
  CHECK(found.only_measured_ranks == std::vector<std::int32_t>{2});
  CHECK(found.single_s == 3);  // f.m0 and b.m0 of rank 0.
}

TEST_CASE("waiting is kept apart from what a rank does", "[compare]") {
  TimelineRecord measured = predicted();
  measured.classes[0].spans[2].ready_s = 3.5;  // Of 2 s it waited 1.5.
  const TimelineComparison found = compare_timelines(predicted(), measured);
  CHECK(found.ops[0].busy.measured_s == 1);
  CHECK(found.ops[0].waiting.measured_s == 3);
  CHECK(found.ops[0].waiting.predicted_s == 0);
}

TEST_CASE("the example's table is the committed one", "[compare]") {
  const std::filesystem::path folder = std::filesystem::path(ORRERY_SOURCE_DIR) / "tests/data/compare";
  const auto text = [&](const char* name) {
    std::ifstream in(folder / name);
    REQUIRE(in);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  const TimelineRecord one = parse_timeline_json(text("predicted.json"), "predicted.json");
  const TimelineRecord two = parse_timeline_json(text("measured.json"), "measured.json");
  CHECK(to_table(compare_timelines(one, two), one, two) == text("table.txt"));
}

TEST_CASE("files of different Programs are refused", "[compare]") {
  TimelineRecord other = predicted();
  other.program_hash = "fedcba9876543210";
  CHECK_THROWS_WITH(compare_timelines(predicted(), other), Contains("different Programs"));
  other = predicted();
  other.classes[0].role = "stage1";
  CHECK_THROWS_WITH(compare_timelines(predicted(), other), Contains("rank 0 has role 'stage0'"));
}

TEST_CASE("the table leads with the step and names grain and tracing", "[compare]") {
  TimelineRecord measured =
      record(true, 5, {{"stage0", {0, 1}, {run_of("f.m0", "f.m1", 0, 2), span("b.m0", 2, 4)}}});
  measured.traced_step_s = 5;
  measured.untraced_step_s = 4.9;
  measured.clocks = {{1, 0, 2e-6}};
  const TimelineComparison found = compare_timelines(predicted(), measured);
  const std::string table = to_table(found, predicted(), measured);
  CHECK_THAT(table, Contains("p: step 4000.000 ms predicted, 5000.000 ms measured: -20.0 %"));
  CHECK_THAT(table, Contains("50.0 % of the measured busy time; as runs of several: 50.0 %"));
  CHECK_THAT(table, Contains("tracing made the measured step +2.0 % longer"));
  CHECK_THAT(table, Contains("within 2.0 us"));
  CHECK_THAT(to_json(found, predicted(), measured), Contains("\"error\": -0.19999999999999996"));
}

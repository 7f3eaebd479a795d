// What is made of a report: totals, tails, tables, JSON.

#include "calibration/validation_report.hpp"

#include <catch2/catch.hpp>

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

// Two groups: "a" with errors of 10, −20, 30 and 40 %, "b" with one row; one refusal.
ValidationReport report() {
  ValidationReport made;
  const auto add = [&](const char* id, const char* source, double predicted) {
    made.rows.push_back({id, source, "H100", "step", 1.0, predicted, predicted - 0.15, predicted + 0.15});
  };
  add("a-1", "a", 1.1);
  add("a-2", "a", 0.8);
  add("a-3", "a", 1.3);
  add("a-4", "a", 1.4);
  add("b-1", "b", 3.0);
  made.refused.push_back({"a", "H100", "step", "experts", 5});
  group_rows(made);
  return made;
}

}  // namespace

TEST_CASE("the overall figure is a median over groups of several rows", "[calibration]") {
  const ValidationTotals all = totals(report());
  CHECK(all.rows == 10);
  CHECK(all.predicted == 5);
  CHECK(all.groups == 1);  // "b" has a single row.
  CHECK(all.median_abs_error == Approx(0.25));
  CHECK(all.coverage == Approx(0.25));  // Only 1.1 ± 0.15 holds 1.
  CHECK(totals({}).groups == 0);
}

TEST_CASE("a group's tail is its 90 % error and its worst rows", "[calibration]") {
  const ValidationReport made = report();
  const GroupTail end = tail(made, made.groups.at(0), 2);
  CHECK(end.p90_abs_error == Approx(0.4));  // ceil(0.9 · 4) = 4th of four.
  CHECK(end.worst == std::vector<std::string>{"a-4", "a-3"});
}

TEST_CASE("tables and JSON say the same", "[calibration]") {
  const std::string table = to_table(report(), false);
  CHECK_THAT(table, Contains("25.0 %") && Contains("+20.0 %") && Contains("a-4, a-3"));
  CHECK_THAT(table, Contains("5  experts") && Contains("5 of 10 rows predicted"));
  CHECK_THAT(table, !Contains("a-2"));
  CHECK_THAT(to_table(report(), true), Contains("a-2") && Contains("outside"));
  CHECK_THAT(to_markdown(report()), Contains("| a | H100 | step | 9 | 4 | 25.0 % | +20.0 % |"));
  const std::string json = to_json(report());
  CHECK_THAT(json, Contains("\"groups_counted\": 1") && Contains("\"reason\": \"experts\""));
  CHECK_THAT(json, Contains("\"id\": \"a-2\""));
}

#include "planner/schedule_diagram.hpp"

#include <catch2/catch.hpp>

namespace orrery {
namespace {

std::string diagram(PipelineSchedule kind, std::int32_t ranks, std::int32_t microbatches, int width) {
  ScheduleShape shape;
  shape.kind = kind;
  shape.ranks = ranks;
  shape.microbatches = microbatches;
  const Schedule schedule = build_schedule(shape);
  return pipeline_diagram(schedule, time_schedule(schedule, even_times(shape, 1, 1, 1)), width);
}

}  // namespace

TEST_CASE("a diagram has a line per rank and a column per share of time", "[planner][pipeline]") {
  // 1F1B, p = 2, m = 2: 9 units, four columns each.
  CHECK(diagram(PipelineSchedule::kOneForwardOneBackward, 2, 2, 36) ==
        "rank 0 |F0--F1--........B0======....B1======|\n"
        "rank 1 |....F0--B0======F1--B1======........|\n");
}

TEST_CASE("a diagram tells split backwards and chunks apart", "[planner][pipeline]") {
  const std::string text = diagram(PipelineSchedule::kZeroBubbleV, 2, 3, 120);
  for (const char* part : {"F0", "f0", "I0", "i0", "W0", "w0", "~", "'"})
    CHECK(text.find(part) != std::string::npos);
  for (const char c : text) CHECK((c == '\n' || (c >= ' ' && c < 127)));
}

TEST_CASE("a narrow diagram keeps the last digits", "[planner][pipeline]") {
  // 12 micro-batches, 36 units in 72 columns: a forward has two, so that F10 and F11 are F0 and F1 again.
  const std::string text = diagram(PipelineSchedule::kOneForwardOneBackward, 1, 12, 72);
  CHECK(text.substr(0, 20) == "rank 0 |F0B0==F1B1==");
  CHECK(text.substr(text.size() - 14) == "F0B10=F1B11=|\n");
}

}  // namespace orrery

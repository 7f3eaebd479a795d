#include "planner/schedule.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace orrery {
namespace {

std::string text(const std::vector<ScheduleItem>& order) {
  std::string result;
  for (const ScheduleItem& item : order)
    result += (item.forward ? "F" : "B") + std::to_string(item.microbatch) + " ";
  return result;
}

}  // namespace

TEST_CASE("1F1B warms up with one forward less on each later stage", "[planner][schedule]") {
  const auto order = [](std::int32_t stage) {
    return text(stage_order(ScheduleKind::kOneForwardOneBackward, stage, 4, 6));
  };
  CHECK(order(0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5 ");
  CHECK(order(1) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5 ");
  CHECK(order(3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 ");
}

TEST_CASE("1F1B with fewer micro-batches than stages does all forwards first", "[planner][schedule]") {
  CHECK(text(stage_order(ScheduleKind::kOneForwardOneBackward, 0, 4, 2)) == "F0 F1 B0 B1 ");
}

}  // namespace orrery

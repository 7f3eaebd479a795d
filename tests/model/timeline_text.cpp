#include <catch2/catch.hpp>

#include "model/timeline.hpp"

namespace orrery {
namespace {

using namespace time_literals;

Program two_stages() {
  return parse_program(R"(
    role first (ranks 0,2):  f0 = compute 10us
                             s0 = send 1MB to next after f0
    role second (ranks 1,3): r0 = recv 1MB from previous
                             f1 = compute 10us after r0)");
}

Timeline timeline_of(std::vector<RankClass> classes) {
  Timeline timeline;
  timeline.classes = std::move(classes);
  timeline.spans = {{0, StreamId(0), 0, 0, 0_us, 0_us, 10_us},
                    {0, StreamId(1), 1, 1, 10_us, 10_us, 22_us},
                    {1, StreamId(0), 0, 0, 0_us, 10_us, 22_us},
                    {1, StreamId(1), 1, 1, 22_us, 22_us, 32_us}};
  return timeline;
}

TEST_CASE("a timeline prints one span a line", "[timeline]") {
  const Timeline timeline =
      timeline_of({{RoleId(0), {RankId(0), RankId(2)}}, {RoleId(1), {RankId(1), RankId(3)}}});
  CHECK(to_text(two_stages(), timeline) == "f0 0us..10us\ns0 10us..22us\nr0 0us..22us\nf1 22us..32us\n");
}

TEST_CASE("several classes of a role are told apart by their first rank", "[timeline]") {
  Timeline timeline = timeline_of({{RoleId(0), {RankId(0)}}, {RoleId(1), {RankId(1), RankId(3)}}});
  timeline.classes.push_back({RoleId(0), {RankId(2)}});
  timeline.spans = {{0, StreamId(0), 0, 0, 0_us, 0_us, 1500_ns},
                    {1, StreamId(0), 0, 1, 1_us, 1_us, 2_ms},
                    {2, StreamId(0), 0, 0, 0_us, 0_us, 3_ps}};
  // A measured span may cover several instructions.
  CHECK(to_text(two_stages(), timeline) ==
        "f0 (rank 0) 0us..1500ns\nr0..f1 1us..2ms\nf0 (rank 2) 0us..3ps\n");
}

}  // namespace
}  // namespace orrery

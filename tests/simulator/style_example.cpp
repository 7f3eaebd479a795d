#include <catch2/catch.hpp>

#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::testing;
using namespace orrery::time_literals;

TEST_CASE("a send starts when its compute ends", "[simulator]") {
  const Program program = parse_program(R"(
    role first (ranks 0):  f0 = compute 10us
                           s0 = send 1MB to next after f0
    role second (ranks 1): r0 = recv 1MB from previous
                           f1 = compute 10us after r0)");
  const Timeline timeline = testing::simulate(program, two_ranks(100e9, 2_us));
  // 1 MB at 100 GB/s takes 10 us, and latency adds 2 us. The receive is posted at once and waits for its
  // sender.
  CHECK(to_text(program, timeline) == "f0 0us..10us\ns0 10us..22us\nr0 0us..22us\nf1 22us..32us\n");
  CHECK(timeline.spans[2].ready == 10_us);
}

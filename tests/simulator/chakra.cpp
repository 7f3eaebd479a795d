// A Chakra trace, simulated: the same as the Program would be that somebody writes by hand.

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>

#include "model/import_chakra.hpp"
#include "tests/simulator/machines.hpp"

namespace orrery {
namespace {

using namespace time_literals;

std::string bytes_of(const std::string& name) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/tests/data/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("two ranks of a trace meet where their nodes say", "[chakra]") {
  Program program =
      read_chakra({{"0.et", bytes_of("chakra-pair.0.et")}, {"1.et", bytes_of("chakra-pair.1.et")}}).program;
  REQUIRE(verify(program).empty());
  // 100 GB/s, 2 us. Rank 0 computes 20 us, sends 1 MB (2 + 10 us) while it computes 40 us more: the
  // all-reduce can begin at 60. Rank 1 has received at 32 and computes 30 us until 62: it is the last, and
  // both wait for it.
  const Cluster cluster = testing::two_ranks(100e9, 2_us);
  const Timeline timeline = testing::simulate(program, cluster);
  for (Role& role : program.roles) role.instructions.pop_back();
  CHECK(testing::simulate(program, cluster).makespan == 62_us);
  CHECK(timeline.makespan > 62_us);
}

TEST_CASE("a ring in which every rank sends before it receives doesn't lock up", "[chakra]") {
  const Program program =
      read_chakra({{"ring.et", bytes_of("chakra-ring.et")}}, ChakraOptions{4, {}}).program;
  REQUIRE(verify(program).empty());
  const Timeline timeline = testing::simulate(program, testing::cluster_of("dgx-h100", 1));
  CHECK(timeline.makespan > 7_us);  // The addition, after a transfer.
  CHECK(timeline.makespan < 20_us);
}

}  // namespace orrery

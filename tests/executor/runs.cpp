#include "executor/runtime/runs.hpp"

#include <catch2/catch.hpp>

namespace orrery::host {

TEST_CASE("a whole tensor is one run of itself", "[runtime]") {
  const Shard all = {{{0, 1}, {0, 1, 2}}};
  CHECK(runs_between(all, all) == std::vector<Run>{{0, 0, 6}});
}

// Rows 0 and 1 of a 2 x 4 tensor, columns 2 and 3 of them: 2, 3 and 6, 7 of the whole.
TEST_CASE("columns are a run a row", "[runtime]") {
  const Shard all = {{{0, 1}, {0, 1, 2, 3}}};
  const Shard right = {{{0, 1}, {2, 3}}};
  CHECK(runs_between(right, all) == std::vector<Run>{{0, 2, 2}, {2, 6, 2}});
  CHECK(runs_between(all, right) == std::vector<Run>{{2, 0, 2}, {6, 2, 2}});
}

// Zigzag pieces 0 and 3 of 8 positions, of which the other side has 4 to 7.
TEST_CASE("what the other side lacks is left out", "[runtime]") {
  const Shard zigzag = {{{0, 1, 6, 7}}};
  const Shard second = {{{4, 5, 6, 7}}};
  CHECK(runs_between(zigzag, second) == std::vector<Run>{{2, 2, 2}});
  CHECK(count(runs_between(zigzag, second)) == 2);
}

TEST_CASE("a scalar has one element", "[runtime]") {
  CHECK(runs_between({}, {}) == std::vector<Run>{{0, 0, 1}});
}

}  // namespace orrery::host

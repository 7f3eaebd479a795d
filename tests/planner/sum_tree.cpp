#include "planner/sum_tree.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random.hpp"

namespace orrery {

TEST_CASE("terms in order are added as a binary counter carries", "[planner]") {
  SumTree tree(4);
  using Merges = std::vector<SumTree::Merge>;
  CHECK(tree.complete(0) == Merges{});
  CHECK(tree.complete(1) == Merges{{0, 1}});
  CHECK(tree.complete(2) == Merges{});
  CHECK(tree.complete(3) == Merges{{2, 3}, {0, 2}});
  CHECK(SumTree(1).complete(0) == Merges{});
}

TEST_CASE("whatever the order, the sum has the tree's bits", "[planner]") {
  Random random(7);
  std::vector<float> terms(16);
  for (float& term : terms) term = static_cast<float>(random.uniform() - 0.5) * 1e3f;
  std::vector<float> level = terms;
  for (std::size_t width = level.size(); width > 1; width /= 2) {
    for (std::size_t i = 0; i < width / 2; ++i) level[i] = level[2 * i] + level[2 * i + 1];
  }
  std::vector<std::int32_t> order(terms.size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = order.size(); i-- > 1;) {
      std::swap(order[i], order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i)))]);
    }
    SumTree tree(16);
    std::vector<float> sums = terms;
    for (const std::int32_t term : order) {
      for (const SumTree::Merge& merge : tree.complete(term)) {
        sums[static_cast<std::size_t>(merge.left)] += sums[static_cast<std::size_t>(merge.right)];
      }
    }
    CHECK(sums[0] == level[0]);
  }
}

}  // namespace orrery

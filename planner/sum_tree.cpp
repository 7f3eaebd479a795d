#include "planner/sum_tree.hpp"

#include <bit>
#include <cassert>

namespace orrery {

SumTree::SumTree(std::int32_t terms) : terms_(terms), done_(2 * static_cast<std::size_t>(terms)) {
  assert(std::has_single_bit(static_cast<std::uint32_t>(terms)));
}

std::vector<SumTree::Merge> SumTree::complete(std::int32_t term) {
  assert(term >= 0 && term < terms_);
  std::vector<Merge> merges;
  std::size_t level = 0;  // Where the nodes of this width begin.
  auto node = static_cast<std::size_t>(term);
  auto nodes = static_cast<std::size_t>(terms_);
  for (std::int32_t width = 1; true; width *= 2) {
    assert(!done_[level + node]);
    done_[level + node] = true;
    if (nodes == 1 || !done_[level + (node ^ 1)]) return merges;
    const auto left = static_cast<std::int32_t>(node & ~std::size_t{1}) * width;
    merges.push_back({left, left + width});
    level += nodes;
    node /= 2;
    nodes /= 2;
  }
}

}  // namespace orrery

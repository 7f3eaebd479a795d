#include "executor/runtime/reduce.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace orrery::host {
namespace {

constexpr std::int64_t kBlock =
    1024;  // Elements at a time: a tree's open sums stay in the first-level cache.
using Block = std::array<float, kBlock>;

TensorView block_of(const TensorView& view, std::int64_t begin, std::int64_t count) {
  return {view.data + begin * size_bytes(view.dtype), view.dtype, count};
}

TensorView floats(Block& block, std::int64_t count) {
  return {reinterpret_cast<std::byte*>(block.data()), DType::kFp32, count};
}

class BlockSum {
 public:
  BlockSum(const Reduce& sum, std::int64_t begin, std::int64_t count, Workspace& workspace)
      : sum_(sum), begin_(begin), count_(count), workspace_(workspace) {}

  void run() {
    Block total;
    if (sum_.reduction == Reduction::kTreeSum) {
      tree(0, sum_.from.size(), total);
    } else {
      load(0, total);
      Block next;
      for (std::size_t s = 1; s < sum_.from.size(); ++s) {
        load(s, next);
        combine(total, next);
      }
    }
    convert(floats(total, count_), block_of(sum_.to, begin_, count_), workspace_);
  }

 private:
  void load(std::size_t source, Block& block) const {
    convert(block_of(sum_.from[source], begin_, count_), floats(block, count_), workspace_);
  }
  void combine(Block& a, const Block& b) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      a[at] = sum_.reduction == Reduction::kMax ? std::max(a[at], b[at]) : a[at] + b[at];
    }
  }
  void tree(std::size_t begin, std::size_t end, Block& result) const {
    if (end - begin == 1) return load(begin, result);
    const std::size_t middle = begin + std::bit_floor(end - begin - 1);
    tree(begin, middle, result);
    Block right;
    tree(middle, end, right);
    combine(result, right);
  }

  const Reduce& sum_;
  std::int64_t begin_, count_;
  Workspace& workspace_;
};

}  // namespace

void reduce(const Reduce& sum, Workspace& workspace) {
  for (std::int64_t begin = 0; begin < sum.to.elements; begin += kBlock) {
    BlockSum(sum, begin, std::min(kBlock, sum.to.elements - begin), workspace).run();
  }
}

}  // namespace orrery::host

#pragma once
// A sum in one fixed order however its terms arrive: a binary tree over 2ⁿ terms.

#include <cstdint>
#include <vector>

namespace orrery {

class SumTree {
 public:
  // The partial sum that begins at term `right` goes into the one that begins at `left`.
  struct Merge {
    std::int32_t left = 0, right = 0;
    bool operator==(const Merge&) const = default;
  };

  // REQUIRES: `terms` is a power of two.
  explicit SumTree(std::int32_t terms);

  // What can be added once this term is there, in order. The last of 2ⁿ terms brings the merge into term 0.
  std::vector<Merge> complete(std::int32_t term);

 private:
  std::int32_t terms_;
  std::vector<bool> done_;  // Nodes, level by level: terms first.
};

}  // namespace orrery

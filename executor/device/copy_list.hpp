#pragma once
// Many small copies as few launches.

#include <cstdint>
#include <vector>

#include "executor/device/launch.hpp"

namespace orrery::device {

// Copies in the order in which they are added; none may read or write what another one writes.
class CopyList {
 public:
  // No address: of scratch that isn't there yet; forgotten.
  void add(std::byte* to, const std::byte* from, std::int64_t bytes);
  // Neighbours as one copy; copies of one size at equal distances, or several such sequences that take turns,
  // as rows.
  std::vector<Launch> launches() const;

 private:
  std::size_t repeats(std::size_t first, std::size_t period) const;

  std::vector<CopyBytes> copies_;
};

}  // namespace orrery::device

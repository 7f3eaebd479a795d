#include "executor/device/copy_list.hpp"

#include <algorithm>

namespace orrery::device {
namespace {

// Sequences that take turns: a zigzag's two halves for some operands.
constexpr std::size_t kMostPeriod = 8;

}  // namespace

void CopyList::add(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0 || to == nullptr || from == nullptr) return;
  if (!copies_.empty()) {
    CopyBytes& last = copies_.back();
    if (to == last.to + last.bytes && from == last.from + last.bytes) {
      last.bytes += bytes;
      return;
    }
  }
  copies_.push_back({to, from, bytes});
}

// How often the `period` copies from `first` on come one after the other, each time as far from the time
// before.
std::size_t CopyList::repeats(std::size_t first, std::size_t period) const {
  std::size_t times = 1;
  for (std::size_t next = first + period; next + period <= copies_.size(); next += period, ++times) {
    for (std::size_t i = 0; i < period; ++i) {
      const CopyBytes &begin = copies_[first + i], &second = copies_[first + period + i];
      const CopyBytes &before = copies_[next - period + i], &here = copies_[next + i];
      const std::int64_t to_stride = second.to - begin.to, from_stride = second.from - begin.from;
      const bool regular = here.bytes == begin.bytes && here.to - before.to == to_stride &&
                           here.from - before.from == from_stride && to_stride > 0 && from_stride > 0;
      if (!regular) return times;
    }
  }
  return times;
}

std::vector<Launch> CopyList::launches() const {
  std::vector<Launch> found;
  for (std::size_t first = 0; first < copies_.size();) {
    std::size_t best = 1, times = 1;
    for (std::size_t period = 1; period <= kMostPeriod && first + 2 * period <= copies_.size(); ++period) {
      const std::size_t rows = repeats(first, period);
      if (rows > times) best = period, times = rows;
    }
    for (std::size_t i = first; i < first + best; ++i) {
      const CopyBytes& row = copies_[i];
      if (times == 1) {
        found.emplace_back(row);
        continue;
      }
      const CopyBytes& next = copies_[i + best];
      found.emplace_back(CopyRows{row.to, row.from, row.bytes, static_cast<std::int64_t>(times),
                                  next.to - row.to, next.from - row.from});
    }
    first += best * times;
  }
  return found;
}

}  // namespace orrery::device

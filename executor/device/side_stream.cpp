#include "executor/device/side_stream.hpp"

#include <algorithm>

namespace orrery::device {
namespace {

bool conflict(const Footprint& first, const Footprint& second) {
  return std::any_of(first.begin(), first.end(), [&](const Touched& a) {
    return std::any_of(second.begin(), second.end(), [&](const Touched& b) {
      return (a.written || b.written) && a.begin < b.end && b.begin < a.end;
    });
  });
}

// By stream: its last instruction that has ended when another one does; −1: none has.
using Ended = std::vector<std::int32_t>;

class Ordering {
 public:
  Ordering(DeviceStep& step, const std::vector<Footprint>& footprints)
      : instructions_(step.instructions),
        footprints_(footprints),
        ended_(step.instructions.size()),
        last_(static_cast<std::size_t>(step.streams), -1) {}

  void run() {
    for (std::size_t i = 0; i < instructions_.size(); ++i) order(i);
  }

 private:
  void order(std::size_t i) {
    DeviceInstruction& instruction = instructions_[i];
    std::int32_t& before = last_[static_cast<std::size_t>(instruction.stream)];
    Ended& ended = ended_[i] = Ended(last_.size(), -1);
    if (before >= 0) know(ended, before);
    for (const std::int32_t other : instruction.after) know(ended, other);
    // The latest first: it has waited for others.
    for (auto j = static_cast<std::int32_t>(i) - 1; j >= 0 && unknown(ended, j); --j) {
      const auto other = static_cast<std::size_t>(j);
      if (ended[static_cast<std::size_t>(instructions_[other].stream)] >= j) continue;
      if (!conflict(footprints_[i], footprints_[other])) continue;
      instruction.after.push_back(j);
      know(ended, j);
    }
    before = static_cast<std::int32_t>(i);
    ended[static_cast<std::size_t>(instruction.stream)] = before;
  }
  void know(Ended& ended, std::int32_t other) const {
    const Ended& theirs = ended_[static_cast<std::size_t>(other)];
    for (std::size_t s = 0; s < ended.size(); ++s) ended[s] = std::max(ended[s], theirs[s]);
  }
  // Whether anything up to `index` may still run.
  bool unknown(const Ended& ended, std::int32_t index) const {
    for (std::size_t s = 0; s < ended.size(); ++s) {
      if (ended[s] < std::min(last_[s], index)) return true;
    }
    return false;
  }

  std::vector<DeviceInstruction>& instructions_;
  const std::vector<Footprint>& footprints_;
  std::vector<Ended> ended_;
  std::vector<std::int32_t> last_;  // By stream, of those before the one under way.
};

}  // namespace

void use_side_stream(DeviceStep& step, const std::vector<Footprint>& footprints,
                     const std::vector<bool>& moved) {
  if (std::find(moved.begin(), moved.end(), true) == moved.end()) return;
  const std::int32_t side = step.streams++;
  for (std::size_t i = 0; i < step.instructions.size(); ++i) {
    if (moved[i]) step.instructions[i].stream = side;
  }
  Ordering(step, footprints).run();
}

}  // namespace orrery::device

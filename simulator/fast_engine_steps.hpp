#pragma once
// What both ways of running a Job record about its steps, when they stop, and what they say of it.

#include <cstdint>
#include <vector>

#include "simulator/engine.hpp"
#include "simulator/fast_engine_layout.hpp"

namespace orrery::fast {

// Picoseconds. `ready` is only written for communication.
struct Times {
  std::int64_t start = 0, ready = 0, end = 0;
};
using StepRecord = std::vector<Times>;  // By instruction of all classes.

// The ends of the steps so far. A period is the difference of two of them; the first step, which nothing
// precedes, is none, so that it takes three steps to see two periods.
class StepEnds {
 public:
  explicit StepEnds(std::int32_t max_steps) : max_steps_(max_steps) {}
  void add(std::int64_t end) { ends_.push_back(end); }
  bool settled() const;
  bool finished() const { return settled() || count() == max_steps_; }
  std::int32_t count() const { return static_cast<std::int32_t>(ends_.size()); }
  std::int64_t last() const { return ends_.empty() ? 0 : ends_.back(); }

  // REQUIRES: finished(), and `record` is that of the last step.
  Timeline timeline(const Layout& layout, const StepRecord& record) const;

 private:
  std::int32_t max_steps_;
  std::vector<std::int64_t> ends_;
};

// A stream that cannot go on.
struct BlockedStream {
  std::int32_t stream = 0;
  std::int32_t instruction = 0;  // Of its role.
  std::int32_t waits_for = -1;   // Instruction of its role; −1: for the other participants.
};

// THROWS Error(kInfeasible), always: who waits for what. `blocked` by stream, ascending.
[[noreturn]] void fail_deadlocked(const Layout& layout, const std::vector<BlockedStream>& blocked);

}  // namespace orrery::fast

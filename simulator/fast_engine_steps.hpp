#pragma once
// What both ways of running a Job record about its steps, when they stop, and what they say of it.

#include <cstdint>
#include <string>
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
// precedes, is none, so that it takes three steps to see two periods. With changes to come, it takes three
// that end after the last one.
class StepEnds {
 public:
  // With a tolerance, periods that differ by no more picoseconds, or by 1e-9, are as good as equal.
  StepEnds(const Job& job, const EngineOptions& options, std::int64_t tolerance = 0);
  // THROWS Error(kInput) when the last change is too many steps away.
  void add(std::int64_t end);
  bool settled() const;
  bool finished() const { return settled() || count() == limit(); }
  // As many steps may begin, as far as is known.
  std::int32_t limit() const { return before_changes_ + max_steps_; }
  std::int32_t count() const { return static_cast<std::int32_t>(ends_.size()); }
  std::int64_t last() const { return ends_.empty() ? 0 : ends_.back(); }
  std::vector<SimTime> times() const;

  // REQUIRES: finished(), and `record` is that of the last step.
  Timeline timeline(const Layout& layout, const StepRecord& record) const;

 private:
  std::int32_t max_steps_;
  std::int64_t tolerance_;
  std::int64_t last_change_ = -1;
  std::int32_t before_changes_ = 0;  // Steps that ended before the last change.
  std::vector<std::int64_t> ends_;
};

// A stream that cannot go on.
struct BlockedStream {
  std::int32_t stream = 0;
  std::int32_t instruction = 0;  // Of its role.
  std::int32_t waits_for = -1;   // Instruction of its role; −1: for the other participants, or its work.
  std::int32_t step = 0;         // In which it is.
};

// "qkv.l3.m0" of the stream's role.
std::string instruction_of(const Layout& layout, std::int32_t stream, std::int32_t instruction);

// THROWS Error(kInfeasible), always: who waits for what. `blocked` by stream, ascending.
[[noreturn]] void fail_deadlocked(const Layout& layout, const std::vector<BlockedStream>& blocked);

}  // namespace orrery::fast

#pragma once
// Runs a Job as a longest path: no clock, no queue of events. Exact as long as nothing contends, which is
// checked afterwards on the times it found: up to the first instant of contention they are right, so
// that instant would be among them. REQUIRES: nobody shares cores, and nothing changes during the run.

#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/engine.hpp"
#include "simulator/fast_engine_layout.hpp"
#include "simulator/fast_engine_steps.hpp"

namespace orrery::fast {

class OnePass {
 public:
  explicit OnePass(const Layout& layout);

  // One step of every class, into `record`; returns its end. `previous` is the step before, if any.
  // THROWS Error(kInfeasible) on a deadlock.
  std::int64_t run_step(const StepRecord* previous, StepRecord& record);

 private:
  struct Stream {
    const Node* next = nullptr;
    std::int64_t free = 0;  // End of its last instruction.
    std::int64_t host = 0;  // When the host began to launch this step.
    std::int32_t next_waiter = -1;
    std::int32_t waits_for = -1;
  };
  struct Meeting {
    std::int64_t latest = 0;
    std::int32_t missing = 0;
  };

  void run_stream(std::int32_t id);
  std::int64_t earliest_start(std::int32_t id, const Node& node);
  void complete(const Rendezvous& meeting, Meeting& state, std::int32_t last_stream);
  void wake_waiters(std::int32_t instruction);
  std::vector<BlockedStream> blocked() const;

  const Layout& layout_;
  const StepRecord* previous_ = nullptr;
  StepRecord* record_ = nullptr;
  std::int64_t launch_ = 0;
  std::int64_t finished_ = 0;
  bool first_step_ = true;
  std::vector<Stream> streams_;
  std::vector<Meeting> meetings_;
  std::vector<std::int32_t> first_waiter_;  // By instruction: a stream, linked by next_waiter; −1: none.
  std::vector<std::int32_t> ready_;         // Streams that may be able to go on.
};

// Nothing when the job contends somewhere before its last step ends. (one_pass_check.cpp)
std::optional<Timeline> run_one_pass(const Layout& layout, const EngineOptions& options,
                                     EngineCounters& counters);

}  // namespace orrery::fast

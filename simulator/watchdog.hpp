#pragma once
// Meetings of ranks that have gone on for too long: the watchdog of a communication library, and who is to
// blame when it bites.

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "simulator/fast_engine_layout.hpp"
#include "simulator/fast_engine_steps.hpp"

namespace orrery::fast {

// Where everything stood when the watchdog bit.
struct Stall {
  std::int32_t rendezvous = -1;
  std::int32_t stream = -1;  // Of the participant that came first.
  std::int64_t since = 0;    // When it came.
  std::vector<BlockedStream> blocked;
};

// Watches a Job that has changes; in others what never ends is a deadlock, or slow by itself.
class Watchdog {
 public:
  explicit Watchdog(const Job& job);

  // A participant reaches the meeting. Dates never decrease.
  void arrive(std::int32_t rendezvous, std::int32_t stream, std::int64_t now);
  void end(std::int32_t rendezvous);
  // When the oldest meeting under way has taken too long; never: a date that nothing reaches.
  std::int64_t deadline();
  // That meeting, without `blocked`; of several the first one of the Job. REQUIRES: there is one.
  Stall oldest() const;

 private:
  struct Meeting {
    std::int64_t since = -1;  // −1: nobody is there.
    std::int32_t stream = -1;
  };
  std::int64_t patience_;  // 0: watches nothing.
  std::vector<Meeting> meetings_;
  std::deque<std::pair<std::int64_t, std::int32_t>> queue_;  // (since, rendezvous), the oldest first.
};

// THROWS HangError, always.
[[noreturn]] void fail_hung(const Layout& layout, const Stall& stall, std::vector<SimTime> step_ends);

}  // namespace orrery::fast

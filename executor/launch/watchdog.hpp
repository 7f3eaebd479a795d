#pragma once
// Ends a run in which a rank is dead or doesn't move, on all ranks and with one message, in a stated time.
// Each process has a watchdog: a thread that looks at the status page and, for ranks on other hosts,
// exchanges heart-beats with rank 0, which relays them.

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "executor/launch/control.hpp"
#include "executor/launch/status_page.hpp"

namespace orrery::launch {

struct WatchdogOptions {
  std::chrono::milliseconds limit{60'000};  // A rank without a heart-beat for so long is stuck.
  std::chrono::milliseconds interval{100};  // Between two looks.
  std::chrono::milliseconds exit_after{
      5'000};  // A process that goes on after the run's end is left by force.
  InstructionName instruction_name;
};

// A rank of this host whose process has gone without being done. Those in other pid namespaces can't be seen.
std::optional<RunEnd> find_gone(const StatusPage& page, const WatchdogOptions& options);

// The rank whose heart-beat is oldest and older than `limit`; or, when none has moved for that long, the one
// whose heart-beat is oldest and older than half of it, or else the one that is furthest behind. Ranks that
// aren't in their first step yet don't count. `heard_ns`: until when heart-beats of other hosts are known.
std::optional<RunEnd> find_stuck(const StatusPage& page, std::int64_t now_ns, std::int64_t heard_ns,
                                 const WatchdogOptions& options);

// Watches from construction to destruction. After a fault waiting ranks throw from keep_waiting() within
// limit + 3 · interval (of death: within 3 · interval; of a host that falls silent: limit + 3 · interval),
// and processes that don't are left with exit code 5 (kRuntime) `exit_after` later. Ranks have to meet
// (Rendezvous::barrier) between their last step and the destruction: a connection that closes before its rank
// is done is a death. Rank 0 sends world size² entries of 48 bytes an interval. Destroyed by an exception
// that isn't the run's end, it ends the run; whoever wants his own message on the other ranks calls end_run
// before.
class Watchdog {
 public:
  // `connections`: Rendezvous::take_watch_connections(); none where all ranks share the page.
  Watchdog(const StatusPage& page, int rank, WatchdogOptions options,
           std::vector<Connection> connections = {});
  ~Watchdog();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::launch

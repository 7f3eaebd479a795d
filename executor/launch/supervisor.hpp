#pragma once
// Runs ranks as processes of this host: forks them, passes on what they say, and when one ends badly or hangs
// ends the others and says which it was and where. No process outlives the call, nor the caller's own death.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/launch/membership.hpp"
#include "executor/launch/status_page.hpp"
#include "executor/launch/watchdog.hpp"

namespace orrery::launch {

struct SupervisorOptions {
  WatchdogOptions watchdog;  // When a rank counts as stuck. The supervisor watches; ranks needn't.
  std::chrono::milliseconds grace{
      2'000};  // After the run's end, until ranks that are still there get SIGTERM …
  std::chrono::milliseconds kill{2'000};  // … and after that, until SIGKILL.
  // Each line of a rank's standard error. Not set: it goes to ours as "[rank 2] LINE".
  std::function<void(int rank, std::string_view line)> on_line;
};

struct RankExit {
  int exit_code = 0;  // −1: it was killed by `signal`.
  int signal = 0;
  bool ended_by_us = false;  // By SIGTERM or SIGKILL, after another rank's fault.
  std::int64_t step = -1;    // Where it was, as RankStatus.
  std::int32_t instruction = -1;
};

struct RunResult {
  std::vector<RankExit> ranks;
  int culprit = -1;     // The rank whose end was the first that wasn't well; −1: none.
  std::string message;  // "rank 2 was killed by signal 9 (Killed) during step 17"; "" where all went well.
  bool interrupted = false;  // By SIGINT or SIGTERM to this process.

  bool ok() const { return message.empty(); }
};

// `work` runs in the forked process, has joined `page` as its rank, and returns the exit code. An exception
// ends the run with its message; an Error's kind is the exit code. Standard input is /dev/null. SIGINT and
// SIGTERM to the caller end all ranks. THROWS Error(kRuntime) where no process can be made. REQUIRES: no
// other thread runs (it forks).
using RankWork = std::function<int(int rank, const StatusPage& page)>;
RunResult run_ranks(int ranks, const SupervisorOptions& options, const RankWork& work);

}  // namespace orrery::launch

#pragma once
// Where each rank is, and whether the run has been ended: a page that ranks of one host share (or one process
// has for itself). Whoever waits for another rank calls keep_waiting() in its loop, and so never waits for a
// dead one.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "executor/launch/shared_segment.hpp"

namespace orrery::launch {

enum class RankState : std::int32_t { kAbsent, kRunning, kDone };

// Written by the rank's own thread; those of ranks on other hosts by the watchdog. Times are CLOCK_MONOTONIC,
// which the processes of one host share. Says nothing while the state is kAbsent, so that a page of zeros is
// one.
struct RankStatus {
  std::atomic<RankState> state;
  std::atomic<std::int32_t> pid;          // 0: on another host.
  std::atomic<std::int64_t> pid_space;    // In which pid namespace; containers may share memory and not that.
  std::atomic<std::int64_t> pid_start;    // When that process started: a pid may be given again.
  std::atomic<std::int64_t> step;         // −1: not in the first step yet.
  std::atomic<std::int32_t> instruction;  // −1: between instructions.
  std::atomic<std::int64_t> moved_ns;     // When step or instruction was last written.
  std::atomic<std::int64_t> heartbeat_ns;  // When the thread was last known to run; waiting counts.
};

// Why the run was ended. The first reason stays.
struct RunEnd {
  int rank = -1;  // Whose fault.
  std::string message;
};

struct EndFlag {
  std::atomic<std::int32_t> state;  // 0: the run goes on; 1: the reason is being written; 2: it stands.
  std::atomic<std::int32_t> reported;
  std::int32_t rank;
  char message[1000];
};

class StatusPage {
 public:
  static std::size_t bytes(int world_size);
  // REQUIRES: a segment of that many bytes, zeros at first, and used by pages of this world size only.
  StatusPage(SharedSegment segment, int world_size);

  int world_size() const { return world_size_; }
  RankStatus& rank(int rank) const;
  EndFlag& end() const;

 private:
  SharedSegment segment_;
  int world_size_;
};

// Makes this thread the one that works for `rank`, from here to leave_page: it is marked as running, and what
// follows below is about this rank and page.
void join_page(const StatusPage& page, int rank);
void leave_page();  // Marks it as done.

// The calling thread's rank is there now. Costs a few stores and reading a clock.
void now_at(std::int64_t step, std::int32_t instruction);

// One turn of a loop that waits: moves the heart-beat.
// THROWS Error(kRuntime) with the reason if the run was ended. Does nothing in threads that have joined no
// page.
void keep_waiting();

// For who sees that another rank has gone, and knows less of it than its supervisor or watchdog will in a
// moment: waits for their verdict, at most so long. kVerdict is what they take to come to it, and some more.
// In threads that have joined no page it returns at once. THROWS as keep_waiting().
constexpr std::chrono::milliseconds kVerdict{2'000};
void await_run_end(std::chrono::milliseconds longest);

// Whether the run was ended, for who can't throw where he stands.
bool aborted();

// Ends the run on all ranks that share the page (and, by the watchdog, on the others).
void end_run(const StatusPage& page, const RunEnd& reason);
std::optional<RunEnd> run_end(const StatusPage& page);
// True for the first caller on the host, so that one message is printed and not one for each rank.
bool claim_report(const StatusPage& page);

// "step 17, instruction 4 (all_reduce gradients)" or "before the first step". The names are the caller's.
using InstructionName = std::function<std::string(int rank, std::int32_t instruction)>;
std::string where_is(const RankStatus& status, int rank, const InstructionName& name);

std::int64_t monotonic_ns();
std::int64_t own_pid_space();  // The number of this process' pid namespace.
// 0: no such process, or one that has ended and wasn't waited for.
std::int64_t process_start(std::int32_t pid);

}  // namespace orrery::launch

// Who is blamed for a run that doesn't go on, and that all ranks hear of it, with and without a shared page.
#include <catch2/catch.hpp>

#include <signal.h>

#include "executor/launch/rendezvous.hpp"
#include "executor/launch/watchdog.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;
using test::free_port;
using test::in_processes;
using test::member;

constexpr std::int64_t kSecond_ns = 1'000'000'000;

StatusPage own_page(int ranks) {
  return StatusPage(SharedSegment::anonymous(StatusPage::bytes(ranks)), ranks);
}

void place(const StatusPage& page, int rank, std::int64_t step, std::int32_t instruction,
           std::int64_t moved_s, std::int64_t heartbeat_s) {
  RankStatus& status = page.rank(rank);
  status.step = step;
  status.instruction = instruction;
  status.moved_ns = moved_s * kSecond_ns;
  status.heartbeat_ns = heartbeat_s * kSecond_ns;
  status.state = RankState::kRunning;
}

std::string stuck(const StatusPage& page, std::int64_t now_s) {
  WatchdogOptions options;
  options.limit = 10s;
  const auto found = find_stuck(page, now_s * kSecond_ns, now_s * kSecond_ns, options);
  return found ? fmt::format("{}: {}", found->rank, found->message) : "";
}

WatchdogOptions quick() {
  WatchdogOptions options;
  options.limit = 600ms;
  options.interval = 20ms;
  options.exit_after = 0ms;
  options.instruction_name = [](int, std::int32_t) { return std::string("all-reduce"); };
  return options;
}

[[noreturn]] void wait_for_others() {
  while (true) {
    keep_waiting();
    std::this_thread::sleep_for(1ms);
  }
}

// Ranks as on hosts of their own: each has its page, and they know of each other by connections alone.
std::vector<std::string> on_hosts_of_their_own(int count, const WatchdogOptions& options,
                                               const std::function<void(int, Rendezvous&)>& work) {
  const std::uint16_t port = free_port("127.0.0.1");
  return in_processes(count, [&, port](int rank) {
    Rendezvous rendezvous(member(rank, count, "127.0.0.1", port));
    const StatusPage page = own_page(count);
    join_page(page, rank);
    Watchdog watchdog(page, rank, options, rendezvous.take_watch_connections());
    work(rank, rendezvous);
    leave_page();
    return std::string("done");
  });
}

}  // namespace

TEST_CASE("the rank with the oldest heart-beat is stuck", "[launch]") {
  const StatusPage page = own_page(3);
  CHECK(stuck(page, 1000) == "");  // Nobody has come.
  place(page, 0, 7, 2, 100, 109);  // Waits: its heart-beat moves, it doesn't.
  place(page, 1, 7, 1, 100, 100);  // Doesn't show any sign of life since 100 s.
  place(page, 2, -1, -1, 0, 0);    // Still loads.
  CHECK(stuck(page, 110) == "");   // 10 s, which is the limit.
  CHECK(stuck(page, 111) ==
        "1: rank 1 is stuck during step 7, instruction 1: no sign of life for 11.0 s, the limit is 10.0 s");
  page.rank(1).state = RankState::kDone;
  CHECK(stuck(page, 111) == "");
}

TEST_CASE("where none moves, one that is silent is named, not the one furthest behind", "[launch]") {
  const StatusPage page = own_page(2);
  place(page, 0, 7, 1, 100, 111);
  place(page, 1, 7, 2, 100, 103);  // Stopped while it waited.
  CHECK(stuck(page, 110) == "");
  CHECK(stuck(page, 111) ==
        "1: rank 1 is stuck during step 7, instruction 2: no sign of life for 8.0 s, the limit is 10.0 s");
}

TEST_CASE("where all wait the one furthest behind is named", "[launch]") {
  const StatusPage page = own_page(3);
  place(page, 0, 7, 2, 100, 115);
  place(page, 1, 6, 9, 104, 115);
  place(page, 2, 7, 0, 101, 115);
  CHECK(stuck(page, 114) == "");  // Rank 1 moved 10 s ago.
  CHECK(stuck(page, 115) ==
        "1: all ranks wait and none has moved for 11.0 s, the limit is 10.0 s: rank 1 is furthest behind, "
        "during step 6, "
        "instruction 9");
  place(page, 2, -1, -1, 101, 101);  // They wait for one that still loads.
  CHECK(stuck(page, 115) == "");
}

TEST_CASE("a process that has gone without being done is found", "[launch]") {
  const StatusPage page = own_page(2);
  const pid_t gone = test::start([&] {
                       join_page(page, 1);
                       now_at(3, 1);
                       return std::string();
                     }).pid;
  CHECK(test::comes_true([&] { return process_start(gone) == 0; }));  // A zombie counts.
  const auto found = find_gone(page, quick());
  REQUIRE(found);
  CHECK(found->message ==
        fmt::format("rank 1 has gone: its process {} ended during step 3, instruction 1 (all-reduce)", gone));
  // The same number given to another process.
  page.rank(1).pid = getpid();
  CHECK(find_gone(page, quick())->rank == 1);
  page.rank(1).pid_space = 1;  // Where that number means somebody else.
  CHECK(!find_gone(page, quick()));
  page.rank(1).pid_space = own_pid_space();
  page.rank(1).pid_start = process_start(getpid());
  CHECK(!find_gone(page, quick()));
  waitpid(gone, nullptr, 0);
}

TEST_CASE("the first reason for a run's end stays, and one process reports it", "[launch]") {
  const StatusPage page = own_page(1);
  CHECK(!run_end(page));
  join_page(page, 0);
  keep_waiting();
  CHECK(!aborted());
  end_run(page, {3, "first"});
  end_run(page, {4, "second"});
  CHECK(run_end(page)->rank == 3);
  CHECK(aborted());
  CHECK_THROWS_WITH(keep_waiting(), "first");
  leave_page();
  keep_waiting();
  CHECK(claim_report(page));
  CHECK(!claim_report(page));
  const StatusPage another = own_page(1);
  end_run(another, {0, std::string(5000, 'x')});
  CHECK(run_end(another)->message == std::string(999, 'x'));
}

TEST_CASE("a run that goes well is left alone", "[launch]") {
  const auto said = on_hosts_of_their_own(3, quick(), [](int rank, Rendezvous& rendezvous) {
    for (int step = 0; step < 50; ++step) {
      now_at(step, 0);
      keep_waiting();
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + rank));
    }
    rendezvous.barrier();
  });
  CHECK(said == std::vector<std::string>{"done", "done", "done"});
}

TEST_CASE("ranks that others have launched share a page and hear of a death by it", "[launch]") {
  const std::uint16_t port = free_port("127.0.0.1");
  const auto said = in_processes(3, [&](int rank) {
    Rendezvous rendezvous(member(rank, 3, "127.0.0.1", port));
    HostSegment shared = share_on_host(rendezvous, StatusPage::bytes(3));
    const StatusPage page(std::move(shared.segment), 3);
    join_page(page, rank);
    Watchdog watchdog(page, rank, quick());  // No connections.
    now_at(17, 4);
    rendezvous.barrier();
    if (rank == 1) kill(getpid(), SIGKILL);
    wait_for_others();
    return std::string();
  });
  CHECK(said[0] == said[2]);
  CHECK(said[0].starts_with("rank 1 has gone: its process "));
  CHECK(said[0].ends_with(" ended during step 17, instruction 4 (all-reduce)"));
}

TEST_CASE("a rank on another host that is killed ends the run on all", "[launch]") {
  const int victim = GENERATE(0, 2);
  const auto said = on_hosts_of_their_own(3, quick(), [&](int rank, Rendezvous& rendezvous) {
    rendezvous.barrier();
    now_at(17, 4);
    std::this_thread::sleep_for(100ms);  // Some heart-beats tell where it is.
    if (rank == victim) kill(getpid(), SIGKILL);
    wait_for_others();
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string& text = said[static_cast<std::size_t>(rank)];
    CHECK(text == (rank == victim
                       ? ""
                       : fmt::format("rank {} has gone: its connection closed during step 17, instruction 4 "
                                     "(all-reduce)",
                                     victim)));
  }
}

TEST_CASE("a rank on another host that hangs is named on all", "[launch]") {
  const int victim = GENERATE(0, 1);
  const auto said = on_hosts_of_their_own(3, quick(), [&](int rank, Rendezvous& rendezvous) {
    rendezvous.barrier();
    now_at(4, 2);
    if (rank != victim) wait_for_others();
    while (!aborted()) std::this_thread::sleep_for(1ms);
    throw Error(ErrorKind::kRuntime, "hung");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const std::string& text = said[static_cast<std::size_t>(rank)];
    CAPTURE(text);
    if (rank == victim) CHECK(text == "hung");
    if (rank != victim) {
      CHECK(text.starts_with(
          fmt::format("rank {} is stuck during step 4, instruction 2 (all-reduce): ", victim)));
    }
  }
}

TEST_CASE("a host that falls silent is named", "[launch]") {
  const auto said = on_hosts_of_their_own(3, quick(), [&](int rank, Rendezvous& rendezvous) {
    rendezvous.barrier();
    if (rank == 1) {  // All its threads, as when the machine loses power: the connection stays.
      if (const pid_t helper = fork(); helper == 0) {
        std::this_thread::sleep_for(1500ms);
        kill(getppid(), SIGKILL);
        _exit(0);
      }
      raise(SIGSTOP);
    }
    wait_for_others();
  });
  for (const std::size_t rank : {0u, 2u}) {
    CAPTURE(said[rank]);
    CHECK(said[rank].starts_with("rank 1 hasn't been heard of for 0."));
    CHECK(said[rank].ends_with("it was last before the first step"));
  }
}

TEST_CASE("a rank's own failure is told on all hosts", "[launch]") {
  const auto said = on_hosts_of_their_own(3, quick(), [](int rank, Rendezvous& rendezvous) {
    rendezvous.barrier();
    if (rank == 2) throw Error(ErrorKind::kRuntime, "mine");
    wait_for_others();
  });
  CHECK(said == std::vector<std::string>{"rank 2 has failed", "rank 2 has failed", "mine"});
}

TEST_CASE("a process that doesn't heed the run's end is left by force", "[launch]") {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    const StatusPage page = own_page(2);
    WatchdogOptions options = quick();
    options.exit_after = 50ms;
    claim_report(page);  // Not a line of this test's output.
    Watchdog watchdog(page, 0, options);
    end_run(page, {1, "ended"});
    while (true) std::this_thread::sleep_for(1s);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 5);
}

}  // namespace orrery::launch

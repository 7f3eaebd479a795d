// Ranks that end well, badly and not at all, as forked processes.
#include <catch2/catch.hpp>

#include <signal.h>

#include <map>

#include "executor/launch/mesh.hpp"
#include "executor/launch/supervisor.hpp"
#include "tests/executor/launch_processes.hpp"

namespace orrery::launch {
namespace {

using namespace std::chrono_literals;

SupervisorOptions quick() {
  SupervisorOptions options;
  options.watchdog.limit = 500ms;
  options.watchdog.interval = 20ms;
  options.watchdog.instruction_name = [](int, std::int32_t instruction) {
    return instruction == 4 ? std::string("all-reduce") : std::string("other");
  };
  options.grace = 300ms;
  options.kill = 300ms;
  return options;
}

// As a rank does that waits for another one.
[[noreturn]] void wait_for_others() {
  while (true) {
    keep_waiting();
    std::this_thread::sleep_for(1ms);
  }
}

// Deaf to SIGTERM (also since Catch2 takes that for a failed test) and without a sign of life. `ready` comes
// between.
template <class Ready>
[[noreturn]] void hang(const Ready& ready) {
  signal(SIGTERM, SIG_IGN);
  ready();
  while (true) std::this_thread::sleep_for(1s);
}

// Pids of the ranks, for a look at who is left.
struct Pids {
  SharedSegment segment = SharedSegment::anonymous(64 * sizeof(pid_t));
  pid_t* list() { return reinterpret_cast<pid_t*>(segment.bytes().data()); }
  void note(int rank) { list()[rank] = getpid(); }
};

void check_no_process_left(Pids& pids, int ranks) {
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
  for (int rank = 0; rank < ranks; ++rank) {
    CHECK(pids.list()[rank] != 0);
    CHECK(!test::exists(pids.list()[rank]));
  }
}

Membership forked_membership(int rank, int ranks, const Listener& listener) {
  Membership result;
  result.rank = result.local_rank = rank;
  result.world_size = result.local_size = ranks;
  result.coordinator_host = "127.0.0.1";
  result.coordinator_port = listener.port;
  result.job_id = "forked";
  result.launched_by = "orrery";
  result.origin = "forked by orrery itself";
  return result;
}

}  // namespace

TEST_CASE("ranks run to their end and what they say has their name", "[launch]") {
  SupervisorOptions options = quick();
  std::map<int, std::string> lines;
  options.on_line = [&](int rank, std::string_view line) { lines[rank] += fmt::format("<{}>", line); };
  Pids pids;
  const RunResult result = run_ranks(3, options, [&](int rank, const StatusPage&) {
    pids.note(rank);
    fmt::print(stderr, "one of {}\ntwo", rank);
    now_at(8, -1);
    return 0;
  });
  CHECK(result.ok());
  CHECK(result.culprit == -1);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(lines[rank] == fmt::format("<one of {}><two>", rank));
    CHECK(result.ranks[static_cast<std::size_t>(rank)].exit_code == 0);
    CHECK(result.ranks[static_cast<std::size_t>(rank)].step == 8);
  }
  check_no_process_left(pids, 3);
}

TEST_CASE("a rank that ends with an exit code ends the others", "[launch]") {
  Pids pids;
  const RunResult result = run_ranks(4, quick(), [&](int rank, const StatusPage&) {
    pids.note(rank);
    now_at(17, rank == 2 ? -1 : 4);
    if (rank == 2) return 3;
    wait_for_others();
  });
  CHECK(result.culprit == 2);
  CHECK(result.message == "rank 2 ended with exit code 3 during step 17");
  CHECK(result.ranks[2].exit_code == 3);
  for (const std::size_t rank : {0u, 1u, 3u}) {
    CHECK(result.ranks[rank].exit_code == 5);  // Error(kRuntime) out of keep_waiting.
    CHECK(!result.ranks[rank].ended_by_us);
  }
  check_no_process_left(pids, 4);
}

TEST_CASE("a rank that is killed is named with signal, step and instruction", "[launch]") {
  const int victim = GENERATE(0, 2);
  Pids pids;
  const RunResult result = run_ranks(4, quick(), [&](int rank, const StatusPage&) -> int {
    pids.note(rank);
    now_at(17, 4);
    if (rank == victim) kill(getpid(), SIGKILL);
    wait_for_others();
  });
  CHECK(result.culprit == victim);
  CHECK(result.message ==
        fmt::format("rank {} was killed by signal 9 (Killed) during step 17, instruction 4 (all-reduce)",
                    victim));
  const RankExit& exit = result.ranks[static_cast<std::size_t>(victim)];
  CHECK(exit.signal == SIGKILL);
  CHECK(exit.instruction == 4);
  CHECK(!exit.ended_by_us);
  check_no_process_left(pids, 4);
}

TEST_CASE("a rank that hangs is named and ended, whatever it ignores", "[launch]") {
  Pids pids;
  const RunResult result = run_ranks(3, quick(), [&](int rank, const StatusPage&) -> int {
    pids.note(rank);
    if (rank == 1) hang([] { now_at(2, 1); });
    now_at(2, rank);
    wait_for_others();
  });
  CHECK(result.culprit == 1);
  CHECK(result.message.starts_with(
      "rank 1 is stuck during step 2, instruction 1 (other): no sign of life for 0."));
  CHECK(result.message.ends_with("the limit is 0.5 s"));
  CHECK(result.ranks[1].signal == SIGKILL);
  CHECK(result.ranks[1].ended_by_us);
  CHECK(result.ranks[0].exit_code == 5);
  check_no_process_left(pids, 3);
}

TEST_CASE("ranks that all wait for each other are ended", "[launch]") {
  const RunResult result = run_ranks(3, quick(), [&](int rank, const StatusPage&) -> int {
    now_at(5, rank == 1 ? 3 : 4);
    wait_for_others();
  });
  CHECK(result.culprit == 1);
  CHECK(result.message.starts_with("all ranks wait and none has moved for 0."));
  CHECK(result.message.ends_with("rank 1 is furthest behind, during step 5, instruction 3 (other)"));
}

TEST_CASE("a rank's Error is everybody's message and its kind the exit code", "[launch]") {
  const RunResult result = run_ranks(2, quick(), [&](int rank, const StatusPage&) -> int {
    if (rank == 0) fail(ErrorKind::kInput, "weights.bin: 3 bytes are missing");
    wait_for_others();
  });
  CHECK(result.culprit == 0);
  CHECK(result.message == "rank 0: weights.bin: 3 bytes are missing");
  CHECK(result.ranks[0].exit_code == 3);
  CHECK(result.ranks[1].exit_code == 5);
}

TEST_CASE("what a rank has started and left ends with the run", "[launch]") {
  Pids pids;
  const RunResult result = run_ranks(2, quick(), [&](int rank, const StatusPage&) {
    if (rank == 0 && fork() == 0) {
      hang([&] { pids.note(5); });
    }
    while (pids.list()[5] == 0) std::this_thread::sleep_for(1ms);
    return 0;
  });
  CHECK(result.ok());
  // It isn't our child: init takes it off the list some time.
  CHECK(test::comes_true([&] { return process_start(pids.list()[5]) == 0; }));
}

TEST_CASE("forked ranks meet, connect and lose one", "[launch]") {
  const bool loses = GENERATE(false, true);
  Listener listener = listen_at("127.0.0.1", 0);
  const RunResult result = run_ranks(3, quick(), [&](int rank, const StatusPage&) {
    Rendezvous rendezvous(forked_membership(rank, 3, listener), {}, std::move(listener));
    Mesh mesh = connect_mesh(rendezvous);
    const auto sent = static_cast<std::byte>(rank);
    std::byte received{};
    now_at(0, 4);
    if (loses && rank == 1) kill(getpid(), SIGUSR1);
    mesh.exchange((rank + 1) % 3, {&sent, 1}, (rank + 2) % 3, {&received, 1});
    rendezvous.barrier();
    return received == static_cast<std::byte>((rank + 2) % 3) ? 0 : 1;
  });
  CHECK(result.culprit == (loses ? 1 : -1));  // And not the neighbour whose connection closed.
  CHECK(result.message == (loses ? "rank 1 was killed by signal 10 (User defined signal 1) during step 0, "
                                   "instruction 4 (all-reduce)"
                                 : ""));
}

TEST_CASE("no rank outlives an exception of the caller's own", "[launch]") {
  SupervisorOptions options = quick();
  options.on_line = [](int, std::string_view) { throw Error(ErrorKind::kInput, "no room for a line"); };
  Pids pids;
  const auto run = [&] {
    run_ranks(3, options, [&](int rank, const StatusPage&) -> int {
      hang([&] {
        pids.note(rank);
        while (pids.list()[0] == 0 || pids.list()[1] == 0 || pids.list()[2] == 0)
          std::this_thread::sleep_for(1ms);
        fmt::print(stderr, "a line\n");
      });
    });
  };
  CHECK_THROWS_WITH(run(), "no room for a line");
  check_no_process_left(pids, 3);
  CHECK_THROWS_AS(run_ranks(0, quick(), [](int, const StatusPage&) { return 0; }), Error);
}

TEST_CASE("an interrupt ends all ranks", "[launch]") {
  Pids pids;
  const test::Process caller = test::start([&] {
    const RunResult result =
        run_ranks(2, quick(), [&](int rank, const StatusPage&) -> int { hang([&] { pids.note(rank); }); });
    return fmt::format("{} {}", result.interrupted, result.message);
  });
  REQUIRE(test::comes_true([&] { return pids.list()[0] != 0 && pids.list()[1] != 0; }));
  kill(caller.pid, SIGINT);
  CHECK(caller.wait() == "true interrupted by signal 2 (Interrupt)");
  check_no_process_left(pids, 2);
}

TEST_CASE("ranks don't outlive a caller that is killed", "[launch]") {
  Pids pids;
  const test::Process caller = test::start([&] {
    run_ranks(3, quick(), [&](int rank, const StatusPage&) -> int { hang([&] { pids.note(rank); }); });
    return std::string();
  });
  const auto all_run = [&] { return pids.list()[0] != 0 && pids.list()[1] != 0 && pids.list()[2] != 0; };
  REQUIRE(test::comes_true(all_run));
  kill(caller.pid, SIGKILL);
  caller.wait();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(test::comes_true([&] { return process_start(pids.list()[rank]) == 0; }));
  }
}

}  // namespace orrery::launch

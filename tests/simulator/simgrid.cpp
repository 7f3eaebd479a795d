// SimGrid as an engine: its rates by hand, and its process.

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <stdexcept>

#include "base/error.hpp"
#include "simulator/compare_engines.hpp"
#include "simulator/engine.hpp"
#include "simulator/simgrid_process.hpp"
#include "tests/simulator/job_builder.hpp"

using namespace orrery;
using namespace orrery::time_literals;
using Catch::Matchers::Contains;
using orrery::testing::JobBuilder;
using simgrid_engine::run_in_child;

namespace {

constexpr std::int64_t kRate = 100'000'000'000;  // 1 MB takes 10 us.
constexpr EngineOptions kOneStep{1, false};

struct Flow {
  std::int64_t bytes = 0;
  std::int64_t cap = 0;
  std::vector<LinkUse> uses;
  SimTime latency;
};

// All flows start at 0; their ends.
std::vector<SimTime> ends(const std::vector<std::int64_t>& links, const std::vector<Flow>& flows) {
  JobBuilder builder;
  for (const std::int64_t capacity : links) builder.add_link(capacity);
  for (const Flow& flow : flows) {
    const std::int32_t rank_class = builder.add_class();
    builder.add_rendezvous(builder.add_transfer(flow.latency, flow.bytes, flow.cap, flow.uses),
                           {{rank_class, 0}});
  }
  std::vector<SimTime> ends;
  for (const Span& span : run_simgrid(builder.job, kOneStep).spans) ends.push_back(span.end);
  return ends;
}

bool has_children() { return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

}  // namespace

TEST_CASE("SimGrid shares a link equally, whatever the latencies", "[simgrid]") {
  // Half the rate each until the first one ends: 1 MB at 50 GB/s. The other has waited 5 us before.
  CHECK(ends({kRate}, {{1'000'000, kRate, {{0, 1}}, {}}, {1'000'000, kRate, {{0, 1}}, 5_us}}) ==
        std::vector{15_us, 20_us});
  CHECK(ends({kRate}, {{1'000'000, kRate, {{0, 1}}, 1_us}, {1'000'000, kRate, {{0, 1}}, 1_us}}) ==
        std::vector{21_us, 21_us});
}

TEST_CASE("SimGrid keeps a flow under its own cap and gives the rest away", "[simgrid]") {
  CHECK(ends({kRate}, {{1'000'000, kRate / 4, {{0, 1}}, {}}, {750'000, kRate, {{0, 1}}, {}}}) ==
        std::vector{40_us, 10_us});
}

TEST_CASE("a flow takes its rate from a link as often as its use counts", "[simgrid]") {
  // Three times r and once r are the capacity: r = 25 GB/s. After 40 us the second flow has it all.
  CHECK(ends({kRate}, {{1'000'000, kRate, {{0, 3}}, {}}, {2'000'000, kRate, {{0, 1}}, {}}}) ==
        std::vector{40_us, 50_us});
  CHECK(ends({kRate}, {{1'000'000, kRate, {{0, 200}}, {}}}) == std::vector{2_ms});
}

TEST_CASE("SimGrid gives max-min fair rates over several links", "[simgrid]") {
  // Links of 100 and 40: the flow over both gets 20, as does the second on the narrow one; the third has 80.
  CHECK(ends({kRate, kRate / 10 * 4}, {{200'000, kRate, {{0, 1}, {1, 1}}, {}},
                                       {200'000, kRate, {{1, 1}}, {}},
                                       {800'000, kRate, {{0, 1}}, {}}}) == std::vector{10_us, 10_us, 10_us});
}

TEST_CASE("a deadlock is told like the fast engine's", "[simgrid]") {
  JobBuilder builder;
  builder.add_class();
  builder.add_class();
  const std::int32_t transfer = builder.add_transfer({}, 0, 0, {});
  builder.add_open({0, 0});
  builder.add_open({0, 0});
  builder.add_open({1, 0});
  builder.add_open({1, 0});
  builder.set_rendezvous(transfer, {{0, 0}, {1, 1}});
  builder.set_rendezvous(transfer, {{0, 1}, {1, 0}});
  const auto message = [&](auto run) -> std::string {
    try {
      run(builder.job, EngineOptions(), nullptr);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInfeasible);
      return error.what();
    }
    return "";
  };
  CHECK_THAT(message(run_fast), Contains("deadlocks"));
  CHECK(message(run_simgrid) == message(run_fast));
}

TEST_CASE("a difference of engines says where it is", "[simgrid]") {
  JobBuilder builder;
  builder.add_class();
  builder.add_compute(0, 10_us);
  builder.add_compute(0, 10_us);
  const Timeline a = run_fast(builder.job, kOneStep);
  CHECK(compare_engines(a, a).within(0));
  builder.job.classes[0].work[1] = 11_us;
  const EngineDifference difference = compare_engines(a, run_simgrid(builder.job, kOneStep));
  CHECK(difference.largest == 1_us);
  CHECK(difference.step_time == 1_us);
  CHECK(difference.relative == Approx(1.0 / 21));
  CHECK_FALSE(difference.within(kEngineTolerance));
  CHECK(to_text(difference, builder.program(), a) ==
        "largest difference 1000000 ps (4.8e-02 of a step) at 'i.m1' of rank 0");
}

TEST_CASE("a child's answer, errors and death reach the parent, and no child stays", "[simgrid]") {
  const std::string large(3'000'000, 'x');
  CHECK(run_in_child([&] { return large; }) == large);
  CHECK(run_in_child([] { return std::string(); }).empty());
  CHECK_THROWS_WITH(run_in_child([]() -> std::string { fail(ErrorKind::kInfeasible, "no {}", 1); }), "no 1");
  CHECK_THROWS_WITH(run_in_child([]() -> std::string { throw std::runtime_error("oh"); }), "SimGrid: oh");
  CHECK_THROWS_WITH(run_in_child([]() -> std::string {
                      std::raise(SIGKILL);
                      return "";
                    }),
                    Contains("ended by signal 9"));
  CHECK_THROWS_WITH(run_in_child([]() -> std::string { ::_exit(3); }),
                    Contains("ended with 3 and no answer"));
  CHECK_FALSE(has_children());
}

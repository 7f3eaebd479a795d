// Speeds and capacities that change while a job runs, by hand, in both engines.

#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "simulator/engine.hpp"
#include "tests/simulator/job_builder.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::time_literals;
using Catch::Matchers::Contains;
using orrery::testing::JobBuilder;

namespace {

constexpr std::int64_t kRate = 100'000'000'000;  // 1 MB takes 10 us.
constexpr EngineOptions kOneStep{1, false};

// The end of the one instruction, by the fast engine; SimGrid's has to be the same up to rounding.
SimTime end_of_first(const Job& job) {
  const SimTime fast = run_fast(job, kOneStep).spans.front().end;
  const SimTime simgrid = run_simgrid(job, kOneStep).spans.front().end;
  CHECK(std::abs((fast - simgrid).picoseconds) <= 1);
  return fast;
}

JobBuilder one_compute(SimTime work) {
  JobBuilder builder;
  builder.add_compute(builder.add_class(), work);
  return builder;
}

JobBuilder one_transfer(std::int64_t bytes) {
  JobBuilder builder;
  const std::int32_t link = builder.add_link(kRate);
  builder.add_class();
  builder.add_rendezvous(builder.add_transfer({}, bytes, kRate, {{link, 1}}), {{0, 0}});
  return builder;
}

std::string message_of(const Program& program, const Cluster& cluster, const Fault& fault) {
  JobOptions options;
  options.faults = {fault};
  try {
    make_job(program, cluster, Profile(), options);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a compute goes on at the speed of the moment", "[changes]") {
  JobBuilder builder = one_compute(10_us);
  // 4 us done, then 6 us at half speed do 3, the last 3 at full speed.
  builder.job.changes = {{4_us, Change::What::kCompute, 0, 0.5}, {10_us, Change::What::kCompute, 0, 1}};
  CHECK(end_of_first(builder.job) == 13_us);
  builder.job.changes[0].factor = 0;  // 4 us done, 6 us of standstill, 6 us.
  CHECK(end_of_first(builder.job) == 16_us);
  builder.job.changes = {{0_us, Change::What::kCompute, 0, 0.001}};
  CHECK(end_of_first(builder.job) == 10_ms);
  builder.job.changes = {{10_us, Change::What::kCompute, 0, 0.5}};  // Too late.
  CHECK(end_of_first(builder.job) == 10_us);
}

TEST_CASE("a flow goes on at the rate that its link has left", "[changes]") {
  JobBuilder builder = one_transfer(1'000'000);
  // Half after 5 us, then 4 us at half rate, then 3 us.
  builder.job.changes = {{5_us, Change::What::kLink, 0, 0.5}, {9_us, Change::What::kLink, 0, 1}};
  CHECK(end_of_first(builder.job) == 12_us);
  builder.job.changes[0].factor = 0;
  CHECK(end_of_first(builder.job) == 14_us);
  // One that starts while the link is slow has the full rate afterwards: 3 us at half rate, then 8.5 us.
  builder.job.changes = {{0_us, Change::What::kLink, 0, 0.5}, {3_us, Change::What::kLink, 0, 1}};
  CHECK(end_of_first(builder.job) == SimTime{11'500'000});
}

TEST_CASE("what never ends is an error", "[changes]") {
  for (const bool compute : {true, false}) {
    JobBuilder builder = compute ? one_compute(10_us) : one_transfer(1'000'000);
    builder.job.changes = {{5_us, compute ? Change::What::kCompute : Change::What::kLink, 0, 0}};
    CHECK_THROWS_AS(run_fast(builder.job, kOneStep), Error);
    CHECK_THROWS_AS(run_simgrid(builder.job, kOneStep), Error);
  }
}

TEST_CASE("steps are simulated until they settle after the last change", "[changes]") {
  JobBuilder builder = one_compute(10_us);
  builder.job.changes = {{35_us, Change::What::kCompute, 0, 0.5}, {50_us, Change::What::kCompute, 0, 1}};
  for (const bool simgrid : {false, true}) {
    EngineCounters counters;
    const Timeline timeline = (simgrid ? run_simgrid : run_fast)(builder.job, {}, &counters);
    CHECK(timeline.makespan == 10_us);
    CHECK(timeline.step_time == 10_us);
    CHECK(timeline.settled);
    // The fourth step: 5 us, then 5 us of work at half speed. The fifth: 2.5 us of work until 50 us.
    const std::vector<SimTime> ends = {
        10_us, 20_us, 30_us, 45_us, SimTime{57'500'000}, SimTime{67'500'000}, SimTime{77'500'000}};
    CHECK(counters.step_ends == ends);
  }
}

TEST_CASE("a change that no step reaches is an error", "[changes]") {
  JobBuilder builder = one_compute(10_us);
  builder.job.changes = {{1'000'000_ms, Change::What::kCompute, 0, 0.5}};
  CHECK_THROWS_WITH(run_fast(builder.job), Contains("the last change comes 1000 s after the start"));
  CHECK_THROWS_WITH(run_simgrid(builder.job), Contains("the last change comes 1000 s after the start"));
}

TEST_CASE("a fault names its rank, part, factor and times", "[changes]") {
  const Program program = testing::grid_program({2, 1, 1, 1, 1});
  const Cluster one_node = testing::cluster_of("dgx-h100", 1);
  using enum Fault::What;
  CHECK_THAT(message_of(program, one_node, {RankId(2), kGpu, 0.5, {}, {}}), Contains("ranks are 0 to 1"));
  CHECK_THAT(message_of(program, one_node, {RankId(0), kGpu, 1.5, {}, {}}), Contains("factor is 1.5"));
  CHECK_THAT(message_of(program, one_node, {RankId(0), kGpu, 1e-9, {}, {}}), Contains("factor is 1e-09"));
  CHECK_THAT(message_of(program, one_node, {RankId(0), kGpu, 0.5, 2_us, 1_us}), Contains("an end after"));
  CHECK_THAT(message_of(program, one_node, {RankId(0), kNic, 0.5, {}, {}}), Contains("has no nic"));
  const Cluster pcie = testing::cluster_of("pcie-l40s", 1);
  CHECK_THAT(message_of(program, pcie, {RankId(0), kNvLink, 0.5, {}, {}}), Contains("has no nvlink"));
  CHECK(message_of(program, one_node, {RankId(0), kNvLink, 0.5, {}, {}}).empty());
}

TEST_CASE("a slow link slows what crosses it, at its own rate", "[changes]") {
  const Program near = parse_program(R"(
    role first (ranks 0):  s0 = send 100MB to next
    role second (ranks 1): r0 = recv 100MB from previous)");
  Program far = near;
  far.device_of = {0, 8};
  const Cluster cluster = testing::cluster_of("dgx-h100", 2);
  JobOptions options;
  const auto end = [&](const Program& of) {
    return testing::simulate(of, cluster, options).spans.front().end;
  };
  const auto seconds = [](double bytes_per_s) { return SimTime{std::llround(1e8 / bytes_per_s * 1e12)}; };
  const double nvlink = cluster.node.links.front().bytes_per_s, nic = cluster.node.nic_bytes_per_s;
  const Router router(cluster);
  const SimTime near_latency = end(near) - seconds(router.path(0, 1).bytes_per_s());
  const SimTime far_latency = end(far) - seconds(router.path(0, 8).bytes_per_s());
  const SimTime near_end = end(near), far_end = end(far);
  REQUIRE(cluster.node.links.front().kind == LinkKind::kNvLink);
  for (const std::int64_t rank : {0, 1}) {
    options.faults = {{RankId(rank), Fault::What::kNvLink, 0.25, {}, {}}};
    CHECK(std::abs((end(near) - near_latency - seconds(nvlink / 4)).picoseconds) <= 1);
    CHECK(end(far) == far_end);
    options.faults = {{RankId(rank), Fault::What::kNic, 0.25, {}, {}}};
    CHECK(std::abs((end(far) - far_latency - seconds(nic / 4)).picoseconds) <= 1);
    CHECK(end(near) == near_end);
  }
}

TEST_CASE("faults of one thing that overlap multiply", "[changes]") {
  const Program program = testing::grid_program({2, 1, 1, 1, 1});
  JobOptions options;
  options.faults = {{RankId(1), Fault::What::kGpu, 0.5, 1_us, 5_us},
                    {RankId(1), Fault::What::kGpu, 0.5, 3_us, 9_us}};
  const Job job = make_job(program, testing::cluster_of("dgx-h100", 1), Profile(), options);
  using enum Change::What;
  REQUIRE(job.classes.size() == 2);
  const std::vector<Change> expected = {
      {1_us, kCompute, 1, 0.5}, {3_us, kCompute, 1, 0.25}, {5_us, kCompute, 1, 0.5}, {9_us, kCompute, 1, 1}};
  CHECK(job.changes == expected);
}

// What is lost and comes back, what doesn't come back, and who is named for it; in both engines.

#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "simulator/compare_engines.hpp"
#include "simulator/hang.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::time_literals;
using Catch::Matchers::Contains;

namespace {

constexpr EngineOptions kTwoSteps{2, false};
constexpr double kCable = 10e9;  // 100 MB take 10 ms.

SimTime end_of_first(const Job& job) {
  const SimTime fast = run_fast(job, {1, false}).spans.front().end;
  const SimTime simgrid = run_simgrid(job, {1, false}).spans.front().end;
  CHECK(std::abs((fast - simgrid).picoseconds) <= 1);
  return fast;
}

using Engine = Timeline (*)(const Job&, const EngineOptions&, EngineCounters*);
std::optional<Hang> hang_of(Engine engine, const Job& job) {
  try {
    engine(job, {}, nullptr);
  } catch (const HangError& error) {
    CHECK(error.kind() == ErrorKind::kInfeasible);
    return error.hang();
  }
  return std::nullopt;
}

// Both engines' answer.
Hang hang_of(const Job& job) {
  const std::optional<Hang> fast = hang_of(run_fast, job), simgrid = hang_of(run_simgrid, job);
  REQUIRE(fast);
  REQUIRE(simgrid);
  CHECK(to_text(*fast) == to_text(*simgrid));
  CHECK(fast->step == simgrid->step);
  CHECK(fast->culprit == simgrid->culprit);
  CHECK(std::abs((fast->since - simgrid->since).picoseconds) <= 16);
  CHECK(fast->step_ends.size() == simgrid->step_ends.size());
  return *fast;
}

// Rank 0 computes for 10 us and sends; 1 receives, computes and sends on to 2.
Program relay() {
  return parse_program(R"(
    role first (ranks 0):  f0 = compute 10us
                           s0 = send 1MB to next after f0
    role second (ranks 1): r0 = recv 1MB from previous
                           f1 = compute 10us after r0
                           s1 = send 1MB to next after f1
    role third (ranks 2):  r1 = recv 1MB from previous)");
}

}  // namespace

TEST_CASE("a transfer waits for exactly as long as its link is lost", "[hang]") {
  const Program program = parse_program(R"(
    role first (ranks 0):  s0 = send 100MB to next
    role second (ranks 1): r0 = recv 100MB from previous)");
  const Cluster cluster = testing::two_ranks(kCable, 1_us);
  const Profile profile;
  const SimTime undisturbed = end_of_first(make_job(program, cluster, profile, {}));
  CHECK(undisturbed > 10_ms);
  JobOptions options;
  options.faults = {{RankId(1), Fault::What::kNvLink, 0, 2_ms, 5_ms}};
  CHECK(end_of_first(make_job(program, cluster, profile, options)) == undisturbed + 3_ms);
  // Lost from the beginning: only the latency passes meanwhile, and that doesn't need the link.
  options.faults[0].from = {};
  const SimTime latency = undisturbed - 10_ms;
  CHECK(end_of_first(make_job(program, cluster, profile, options)) == 5_ms + 10_ms);
  CHECK(latency < 5_ms);
  // For longer than the watchdog, which counts from when both ranks were there.
  options.watchdog = 2_ms;
  const Hang hang = hang_of(make_job(program, cluster, profile, options));
  CHECK(hang.since == 0_us);
  CHECK(hang.until == 2_ms);
  CHECK(hang.culprit == RankId(1));
  CHECK(hang.culprit_instruction.empty());
}

TEST_CASE("who waits for a lost GPU names it, also through others", "[hang]") {
  Cluster cluster = testing::cluster_of("dgx-h100", 1);
  const Program program = relay();
  JobOptions options;
  options.faults = {{RankId(0), Fault::What::kGpu, 0, 5_us, {}}};
  const Hang hang = hang_of(make_job(program, cluster, Profile(), options));
  CHECK(hang.step == 0);
  CHECK(hang.rank == RankId(1));  // It and rank 2 wait from the start.
  CHECK(hang.instruction == "r0");
  CHECK(hang.since == 0_us);
  CHECK(hang.until == kWatchdog);
  CHECK(hang.culprit == RankId(0));
  CHECK(hang.culprit_instruction == "f0");
  REQUIRE(hang.lost.size() == 1);
  CHECK_THAT(to_text(hang), Contains("hangs in step 1 at 'r0' of rank 1") && Contains("for rank 0 at 'f0'") &&
                                Contains("lost: gpu of rank 0"));
  // Rank 1 is lost: rank 2 waits for it through its own transfer with it.
  options.faults = {{RankId(1), Fault::What::kGpu, 0, 0_us, {}}};
  const Hang middle = hang_of(make_job(program, cluster, Profile(), options));
  CHECK(middle.rank == RankId(2));
  CHECK(middle.culprit == RankId(1));
  CHECK(middle.culprit_instruction == "f1");
}

TEST_CASE("a loss in a later step leaves the steps before as they were", "[hang]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 1);
  const Program program = relay();
  EngineCounters undisturbed;
  run_fast(make_job(program, cluster, Profile(), {}), {5, true}, &undisturbed);
  REQUIRE(undisturbed.step_ends.size() >= 3);
  JobOptions options;
  const SimTime third = undisturbed.step_ends[2];
  options.faults = {{RankId(2), Fault::What::kNode, 0, third - 1_us, {}}};
  const Hang hang = hang_of(make_job(program, cluster, Profile(), options));
  REQUIRE(hang.step_ends.size() == 2);
  CHECK(hang.step_ends[0] == undisturbed.step_ends[0]);
  CHECK(hang.step_ends[1] == undisturbed.step_ends[1]);
}

TEST_CASE("what comes back before the watchdog bites goes on", "[hang]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 1);
  JobOptions options;
  options.watchdog = 1_ms;
  options.faults = {{RankId(0), Fault::What::kGpu, 0, 5_us, 900_us}};
  const Program program = relay();
  const Job back = make_job(program, cluster, Profile(), options);
  CHECK(run_fast(back, kTwoSteps).makespan > 895_us);
  options.faults[0].until = 1'100_us;
  CHECK(hang_of(make_job(program, cluster, Profile(), options)).until == 1_ms);
}

TEST_CASE("every kind of part, lost or slow and back, in both engines", "[hang]") {
  const Program program = testing::grid_program({8, 2, 2, 2, 1});
  const Cluster cluster = testing::cluster_of("dgx-h100", 4, 2, 2);
  const SimTime undisturbed = orrery::simulate(program, cluster, Profile(), {}, {2, false}).makespan;
  using enum Fault::What;
  for (const Fault::What what : {kGpu, kNic, kNvLink, kNode, kLeaf, kUplink}) {
    for (const double factor : {0.0, 0.25}) {
      CAPTURE(to_string(what), factor);
      JobOptions options;
      // Rank 8 is of the second stage: it computes then, and its gradients cross leaf switches at the end.
      options.faults = {{RankId(8), what, factor, 150_us, 150_us + undisturbed}};
      const Job job = make_job(program, cluster, Profile(), options);
      EngineCounters fast, simgrid;
      const Timeline a = run_fast(job, kTwoSteps, &fast), b = run_simgrid(job, kTwoSteps, &simgrid);
      CHECK(compare_engines(a, b).within(kEngineTolerance));
      REQUIRE(fast.step_ends.size() == simgrid.step_ends.size());
      for (std::size_t s = 0; s < fast.step_ends.size(); ++s)
        CHECK(std::abs((fast.step_ends[s] - simgrid.step_ends[s]).picoseconds) <= 1000);
      if (factor == 0 && what != kUplink) CHECK(a.makespan > undisturbed);
    }
  }
}

TEST_CASE("a leaf switch takes all cables under it, an uplink none", "[hang]") {
  // A message from node 0 to node 1, both under leaf switches of one pod: rail 3 only.
  const Cluster cluster = testing::cluster_of("dgx-h100", 4, 1, 2);
  Program program = parse_program(R"(
    role first (ranks 0):  s0 = send 100MB to next
    role second (ranks 1): r0 = recv 100MB from previous)");
  const auto end = [&](const Fault& fault) {
    JobOptions options;
    if (fault.rank.valid()) options.faults = {fault};
    return testing::simulate(program, cluster, options).spans.front().end;
  };
  using enum Fault::What;
  program.device_of = {3, 11};  // One leaf switch apart.
  const SimTime near = end({});
  CHECK(end({RankId(0), kLeaf, 0.25, {}, {}}) > near);
  CHECK(end({RankId(0), kUplink, 0.25, {}, {}}) == near);
  program.device_of = {3, 19};  // Node 2 is in another pod.
  const SimTime far = end({});
  CHECK(end({RankId(0), kUplink, 0.01, {}, {}}) > far);
  CHECK(end({RankId(1), kUplink, 0.01, {}, {}}) > far);
}

TEST_CASE("one NVLink of several is between two ranks", "[hang]") {
  const Cluster mesh = testing::cluster_of("dgx-v100-mesh", 1);
  Program program = parse_program(R"(
    role first (ranks 0):  s0 = send 100MB to next
    role second (ranks 1): r0 = recv 100MB from previous)");
  const auto end = [&](RankId peer) {
    JobOptions options;
    options.faults = {{RankId(0), Fault::What::kNvLink, 0.1, {}, {}, peer}};
    return testing::simulate(program, mesh, options).spans.front().end;
  };
  program.device_of = {0, 1};
  const SimTime undisturbed = testing::simulate(program, mesh).spans.front().end;
  CHECK(end(RankId(1)) > undisturbed);
  JobOptions options;
  options.faults = {{RankId(0), Fault::What::kGpu, 0.5, {}, {}, RankId(1)}};
  CHECK_THROWS_WITH(make_job(program, mesh, Profile(), options), Contains("what: nvlink"));
}

TEST_CASE("a GPU whose traffic goes through another's network card shares that card", "[reroute]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 2);
  Program program = parse_program(R"(
    role first (ranks 0):  s0 = send 100MB to next
    role second (ranks 1): r0 = recv 100MB from previous)");
  program.device_of = {0, 8};
  JobOptions options;
  const auto end = [&] { return testing::simulate(program, cluster, options).spans.front().end; };
  const SimTime own = end();
  options.faults = {{RankId(0), Fault::What::kNic, 0.1, {}, {}}};
  const SimTime slow = end();
  options.rerouting.relay.resize(16);
  for (std::int32_t d = 0; d < 16; ++d) options.rerouting.relay[static_cast<std::size_t>(d)] = d;
  options.rerouting.relay[0] = 1;
  const SimTime around = end();
  CHECK(around < slow);
  CHECK(around >= own);  // Two NVLink hops and another rail more.
  CHECK(around < own + own);
}

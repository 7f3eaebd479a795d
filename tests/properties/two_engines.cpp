// The fast engine and SimGrid's, written apart, give the same times for every Job.

#include <algorithm>
#include <catch2/catch.hpp>

#include "simulator/compare_engines.hpp"
#include "simulator/engine.hpp"
#include "tests/properties/engine_random_job.hpp"

namespace orrery {
namespace {

using testing::RandomJob;

// Two steps, so that steps meet each other, and no period that could look settled to one engine only.
constexpr EngineOptions kTwoSteps{2, false};

EngineDifference difference(const Job& job, const EngineOptions& options, EngineCounters& of_simgrid) {
  return compare_engines(run_fast(job, options), run_simgrid(job, options, &of_simgrid));
}

// Classes and links that slow down, stop and come back while the job runs.
void add_changes(Job& job, SimTime makespan, Random& random) {
  const auto some_time = [&] { return SimTime{random.between(0, makespan.picoseconds)}; };
  const auto add = [&](Change::What what, std::size_t count) {
    const auto i = static_cast<std::int32_t>(random.between(0, static_cast<std::int64_t>(count) - 1));
    const double factor = 0.25 * static_cast<double>(random.between(0, 3));
    const SimTime from = some_time();
    job.changes.push_back({from, what, i, factor});
    job.changes.push_back({from + SimTime{1 + some_time().picoseconds / 2}, what, i, 1.0});
  };
  for (std::int64_t n = random.between(1, 3); n-- > 0;) add(Change::What::kCompute, job.classes.size());
  for (std::int64_t n = random.between(1, 3); n-- > 0;) add(Change::What::kLink, job.link_capacity.size());
  std::ranges::stable_sort(job.changes, {}, &Change::at);
}

}  // namespace

TEST_CASE("without contention SimGrid gives the same picoseconds", "[engines]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    const RandomJob random(seed, {false, seed % 2 == 0, 40});
    EngineCounters counters;
    CHECK(difference(random.builder.job, {16, false}, counters).largest == SimTime{});
    CHECK(counters.live_activities_max == 0);
  }
}

TEST_CASE("with contention SimGrid differs by rounding", "[engines]") {
  int with_flows = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    RandomJob random(seed, {true, seed % 2 == 0, 40});
    if (seed % 3 == 0) random.add_interference();
    EngineCounters counters;
    const EngineDifference found = difference(random.builder.job, kTwoSteps, counters);
    CHECK(found.within(kEngineTolerance));
    with_flows += counters.live_activities_max > 1;
  }
  CHECK(with_flows > 100);
}

TEST_CASE("changes during a run come out the same in both engines", "[engines]") {
  int felt = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    RandomJob random(seed, {true, false, 40});
    if (seed % 3 == 0) random.add_interference();
    Job job = random.builder.job;
    const SimTime before = run_fast(job, kTwoSteps).makespan;
    Random more(seed);
    add_changes(job, before, more);
    EngineCounters counters;
    const EngineDifference found = difference(job, kTwoSteps, counters);
    CHECK(found.within(kEngineTolerance));
    felt += run_fast(job, kTwoSteps).makespan != before;
  }
  CHECK(felt > 30);
}

}  // namespace orrery

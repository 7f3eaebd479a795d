// Ranks that share cores: both engines, and what no sharing can do.

#include <catch2/catch.hpp>

#include "simulator/compare_engines.hpp"
#include "simulator/engine.hpp"
#include "tests/properties/engine_random_job.hpp"
#include "tests/properties/random_program.hpp"
#include "topology/host_cores.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr EngineOptions kTwoSteps{2, false};

// Spreads the classes over pools that are too small for them.
void add_cores(Job& job, Random& random) {
  const std::int64_t pools = random.between(1, 2);
  for (std::int64_t p = 0; p < pools; ++p)
    job.core_pools.push_back(static_cast<std::int32_t>(random.between(1000, 3000)));
  for (JobClass& rank_class : job.classes) {
    rank_class.core_pool = static_cast<std::int32_t>(random.between(-1, pools - 1));
    rank_class.pool_members = static_cast<std::int32_t>(random.between(1, 3));
  }
  job.communication_on_core = random.between(0, 1) == 1;
}

// Seconds of compute that a machine of so many cores can't do faster.
SimTime least_time(const Job& job, std::int32_t cores) {
  SimTime work;
  for (const JobClass& rank_class : job.classes)
    for (const SimTime one : rank_class.work)
      work += SimTime{one.picoseconds * std::ssize(rank_class.ranks.ranks)};
  return SimTime{work.picoseconds / cores};
}

}  // namespace

TEST_CASE("jobs whose classes share cores come out the same in both engines", "[engines][cores]") {
  int felt = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    RandomJob random(seed, {seed % 3 != 0, seed % 2 == 0, 40});
    Job job = random.builder.job;
    const SimTime before = run_fast(job, kTwoSteps).makespan;
    Random more(seed);
    add_cores(job, more);
    const Timeline fast = run_fast(job, kTwoSteps);
    CHECK(compare_engines(fast, run_simgrid(job, kTwoSteps)).within(kEngineTolerance));
    felt += fast.makespan != before;
  }
  CHECK(felt > 100);
}

TEST_CASE("random programs on a host come out the same in both engines", "[engines][cores]") {
  Random random(7);
  int shared = 0;
  for (int trial = 0; trial < 100; ++trial) {
    INFO("trial " << trial);
    const Grid grid{static_cast<std::int32_t>(random.between(1, 2)),
                    static_cast<std::int32_t>(random.between(1, 2)),
                    static_cast<std::int32_t>(random.between(1, 2))};
    const Program program = random_program(random, grid);
    Cluster cluster;
    HostShape shape;
    shape.cores = static_cast<std::int32_t>(random.between(1, 4));
    cluster.node = make_host_node(shape);
    const Profile profile = default_profile(cluster.node.gpu);
    const Job job = make_job(program, cluster, profile, {});
    const Timeline fast = run_fast(job, kTwoSteps);
    CHECK(compare_engines(fast, run_simgrid(job, kTwoSteps)).within(kEngineTolerance));
    CHECK(fast.makespan >= least_time(job, shape.cores));
    shared += !job.core_pools.empty();
  }
  CHECK(shared > 20);
}

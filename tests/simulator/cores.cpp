// Ranks that share the cores of a node, by hand, in both engines.

#include <catch2/catch.hpp>
#include <cmath>

#include "simulator/engine.hpp"
#include "tests/simulator/job_builder.hpp"
#include "tests/simulator/machines.hpp"
#include "topology/host_cores.hpp"

using namespace orrery;
using namespace orrery::time_literals;
using orrery::testing::JobBuilder;

namespace {

constexpr EngineOptions kOneStep{1, false};

// When each span ends, by the fast engine; SimGrid's has to be the same.
std::vector<SimTime> ends(const Job& job) {
  const Timeline fast = run_fast(job, kOneStep), simgrid = run_simgrid(job, kOneStep);
  CHECK(fast.spans == simgrid.spans);
  std::vector<SimTime> ends;
  for (const Span& span : fast.spans) ends.push_back(span.end);
  return ends;
}

// Classes that compute for so long each, on the cores of one machine.
JobBuilder computing(const std::vector<SimTime>& work, std::int32_t cores) {
  JobBuilder builder;
  builder.job.core_pools = {1000 * cores};
  for (const SimTime time : work) {
    const std::int32_t added = builder.add_class();
    builder.add_compute(added, time);
    builder.job.classes[static_cast<std::size_t>(added)].core_pool = 0;
  }
  return builder;
}

void set_class_pool(Job& job, std::size_t rank_class) { job.classes[rank_class].core_pool = 0; }

using Times = std::vector<SimTime>;

Cluster host(std::int32_t cores, std::int32_t slots = 8) {
  HostShape shape;
  shape.cores = cores;
  shape.slots = slots;
  Cluster cluster;
  cluster.name = "host";
  cluster.node = make_host_node(shape);
  return cluster;
}

}  // namespace

TEST_CASE("three ranks on two cores compute at two thirds", "[cores]") {
  // 10 us of work at 2/3 of a core.
  CHECK(ends(computing({10_us, 10_us, 10_us}, 2).job) == Times{15_us, 15_us, 15_us});
  CHECK(ends(computing({10_us, 10_us}, 2).job) == Times{10_us, 10_us});
  // One class that stands for three ranks.
  JobBuilder folded = computing({10_us}, 2);
  folded.job.classes[0].pool_members = 3;
  CHECK(ends(folded.job) == Times{15_us});
}

TEST_CASE("who ends leaves the cores to the others", "[cores]") {
  // All at 2/3 until 15 us, when 10 us of the third one's work are left for a core of its own.
  CHECK(ends(computing({10_us, 10_us, 20_us}, 2).job) == Times{15_us, 15_us, 25_us});
  // Four on one: at 1/4 until 4 us; three have 1, 2, 3 us left: 3 us at 1/3; two 1 and 2: 2 us at 1/2; 1 us.
  CHECK(ends(computing({1_us, 2_us, 3_us, 4_us}, 1).job) == Times{4_us, 7_us, 9_us, 10_us});
}

TEST_CASE("a slow rank still takes a whole share", "[cores]") {
  JobBuilder builder = computing({10_us, 10_us, 10_us}, 2);
  builder.job.changes = {{0_us, Change::What::kCompute, 0, 0.5}};
  // Two end at 15 us as before; the slow one has done 15 · 2/3 · 1/2 = 5 us, and the rest takes 10 us.
  CHECK(ends(builder.job) == Times{25_us, 15_us, 15_us});
}

TEST_CASE("a rank's compute stands still while its own transfer is active", "[cores]") {
  JobBuilder builder;
  builder.job.communication_on_core = true;
  const std::int32_t a = builder.add_class(), b = builder.add_class();
  builder.add_compute(a, 10_us);
  const std::int32_t first = builder.add_compute(b, 3_us);
  builder.add_rendezvous(builder.add_transfer(4_us, 0, 0, {}), {{a, 1}, {b, 1, {{first, false}}}});
  // The one that waits until 3 us for the other goes on computing; still from 3 to 7 us; 7 us are left.
  CHECK(ends(builder.job) == Times{14_us, 7_us, 3_us, 7_us});
}

TEST_CASE("a transfer uses a core of each of its ranks", "[cores]") {
  JobBuilder builder;
  builder.job.communication_on_core = true;
  builder.job.core_pools = {2000};
  for (int c = 0; c < 4; ++c) set_class_pool(builder.job, static_cast<std::size_t>(builder.add_class()));
  builder.add_rendezvous(builder.add_transfer(6_us, 0, 0, {}), {{0, 1}, {1, 1}});
  builder.add_compute(2, 6_us);
  builder.add_compute(3, 6_us);
  // Four users of two cores until 6 us: half of the 6 us of work is done; the rest has a core each.
  CHECK(ends(builder.job) == Times{6_us, 6_us, 9_us, 9_us});
  builder.job.communication_on_core = false;
  CHECK(ends(builder.job) == Times{6_us, 6_us, 6_us, 6_us});
}

TEST_CASE("ranks of a host share its cores, folded too", "[cores]") {
  const Program program = parse_program("role all (ranks 0-2): f0 = compute 10us\n");
  const Profile profile;
  for (const bool fold : {true, false}) {
    JobOptions options;
    options.fold = fold;
    const Job job = make_job(program, host(2), profile, options);
    CHECK(job.classes.size() == (fold ? 1 : 3));
    CHECK(job.core_pools == std::vector<std::int32_t>{2000});
    CHECK(job.classes[0].pool_members == (fold ? 3 : 1));
    for (const SimTime end : ends(job)) CHECK(end == 15_us);
  }
  // With a core each nothing is shared, and nobody needs to look.
  const Job alone = make_job(program, host(3), profile, {});
  CHECK(alone.core_pools.empty());
  CHECK(alone.classes[0].core_pool == -1);
}

TEST_CASE("what the runtime adds is part of each instruction", "[cores]") {
  const Program program = parse_program(
      "axis dp [0-1]\n"
      "kernel product matmul fp32 m=100 n=100 k=100 flops=2000000 read=80kB written=40kB\n"
      "role all (ranks 0-1): f0 = compute product\n"
      "                      a0 = all-reduce 1kB after f0\n");
  const Cluster two = host(2);
  Profile profile = default_profile(two.node.gpu);
  const Job with = make_job(program, two, profile, {});
  profile.instruction_s = 0;
  const Job without = make_job(program, two, profile, {});
  CHECK(with.classes[0].work[0] - without.classes[0].work[0] == 1_us);
  CHECK(with.transfers[0].latency - without.transfers[0].latency == 1_us);
}

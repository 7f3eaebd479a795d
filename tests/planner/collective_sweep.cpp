#include "planner/collective_sweep.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "simulator/compare_engines.hpp"
#include "simulator/engine.hpp"
#include "tests/simulator/machines.hpp"

namespace orrery {
namespace {

using enum CollectiveAlgorithm;
using enum CollectiveKind;
using testing::cluster_of;

constexpr std::int64_t kKiB = 1 << 10, kMiB = 1 << 20;

// NCCL's prices without what was measured beside them.
Profile plain_nccl(const Cluster& cluster) {
  Profile profile = default_profile(cluster.node.gpu);
  profile.collectives.ramp = 0;
  profile.collectives.all_reduce_ends = profile.collectives.gather_ends = profile.collectives.scatter_ends =
      0;
  return profile;
}

CollectiveRow row_of(const CollectiveSweep& sweep, const Cluster& cluster) {
  return sweep_collective(sweep, cluster, plain_nccl(cluster)).front();
}

CollectiveSweep sweep_of(CollectiveKind kind, std::optional<CollectiveAlgorithm> algorithm,
                         std::int64_t bytes) {
  CollectiveSweep sweep;
  sweep.kind = kind;
  sweep.algorithm = algorithm;
  sweep.sizes = {bytes};
  return sweep;
}

}  // namespace

TEST_CASE("on links of its own a ring of one loop takes the closed form's time", "[collective]") {
  const Cluster cluster = cluster_of("dgx-a100", 1);  // No NVLS: NCCL chooses the ring.
  for (const CollectiveKind kind : {kAllReduce, kAllGather, kReduceScatter})
    for (const std::int64_t bytes : {kMiB, 16 * kMiB, 64 * kMiB}) {
      INFO(to_string(kind) << " of " << bytes);
      const CollectiveRow row = row_of(sweep_of(kind, kRing, bytes), cluster);
      CHECK(row.classes == 1);
      CHECK(row.time.seconds() == Approx(row.formula.seconds()).epsilon(2e-3));
    }
}

TEST_CASE("no simulated collective beats its bound", "[collective]") {
  // Of each rank 2(n − 1)/n · B have to leave by its link to others (with NVLS B (1 + 1/n)).
  const Cluster cluster = cluster_of("dgx-h100", 2);
  const double nic = cluster.node.nic_bytes_per_s, bytes = 64.0 * kMiB;
  for (const CollectiveAlgorithm algorithm :
       {kRing, kTree, kChain, kHalvingDoubling, kHierarchical, kRingChain, kNvlsTree}) {
    INFO(to_string(algorithm));
    const CollectiveRow row = row_of(sweep_of(kAllReduce, algorithm, 64 * kMiB), cluster);
    // Between two nodes, half of the payload's sum has to cross in each direction over eight NICs.
    CHECK(row.time.seconds() > bytes / (8 * nic));
  }
  for (const CollectiveAlgorithm algorithm : {kPairwise, kPxn})
    CHECK(row_of(sweep_of(kAllToAll, algorithm, 64 * kMiB), cluster).time.seconds() > bytes / 2 / nic);
}

TEST_CASE("both engines agree on 64 GPUs", "[collective]") {
  const Cluster cluster = cluster_of("dgx-h100", 8, 2.0, 4);
  const Router router(cluster);
  const auto agree = [&](const CollectiveSweep& sweep, std::int32_t most_slots = 8) {
    CollectiveSetup setup =
        collective_setup(sweep, sweep.sizes.front(), router, default_profile(cluster.node.gpu));
    setup.spec.slots = std::min(setup.spec.slots, most_slots);
    const CollectiveProgram collective = collective_program(setup.spec);
    REQUIRE(verify(collective.program).empty());
    const Job job = make_job(collective.program, cluster, setup.profile, sweep.job);
    const EngineDifference difference =
        compare_engines(run_fast(job, {1, false}), run_simgrid(job, {1, false}));
    INFO(collective.program.name << ": " << difference.relative << ", " << difference.step_relative);
    CHECK(difference.within(kEngineTolerance));
  };
  for (const CollectiveAlgorithm algorithm :
       {kRing, kTree, kHalvingDoubling, kHierarchical, kRingChain, kNvlsTree})
    agree(sweep_of(kAllReduce, algorithm, 8 * kMiB));
  // Several slots of one long chain that share a link are sensitive to picoseconds (docs/decisions.md).
  agree(sweep_of(kAllReduce, kChain, 8 * kMiB), 1);
  agree(sweep_of(kAllGather, kPat, 8 * kMiB));
  agree(sweep_of(kAllToAll, kPairwise, 8 * kMiB));
  agree(sweep_of(kAllToAll, kPxn, 8 * kMiB));
}

TEST_CASE("a late rank and a slow NIC hold a collective up", "[collective]") {
  const Cluster cluster = cluster_of("dgx-h100", 2);
  CollectiveSweep sweep = sweep_of(kAllReduce, kRing, 64 * kMiB);
  const CollectiveRow alone = row_of(sweep, cluster);
  sweep.job.stragglers = {{RankId(3), 100.0}};  // Of what it does before its first message.
  CHECK(row_of(sweep, cluster).time > alone.time);
  sweep.job.stragglers.clear();
  sweep.job.faults = {{RankId(3), Fault::What::kNic, 0.25, {}, std::nullopt}};
  CHECK(row_of(sweep, cluster).time.seconds() > 1.5 * alone.time.seconds());
}

TEST_CASE("NCCL's choice decides unless the sweep does", "[collective]") {
  const Cluster node = cluster_of("dgx-h100", 1), sixteen = cluster_of("dgx-h100", 16);
  CHECK(row_of(sweep_of(kAllReduce, {}, 64 * kKiB), node).algorithm == kRing);
  CHECK(row_of(sweep_of(kAllReduce, {}, 64 * kMiB), node).algorithm == kNvls);
  CHECK(row_of(sweep_of(kAllReduce, {}, 64 * kKiB), sixteen).algorithm == kTree);
  CHECK(row_of(sweep_of(kAllReduce, {}, 64 * kMiB), sixteen).algorithm == kNvlsTree);
  CHECK(row_of(sweep_of(kAllToAll, {}, kMiB), node).algorithm == kPairwise);
  CHECK(row_of(sweep_of(kAllToAll, {}, kMiB), sixteen).algorithm == kPxn);
  CHECK_THROWS_WITH(row_of(sweep_of(kAllToAll, kRing, kMiB), node), Catch::Contains("isn't done"));
  CollectiveSweep uneven = sweep_of(kAllReduce, {}, kMiB);
  uneven.devices = {0, 1, 8};
  CHECK_THROWS_WITH(row_of(uneven, sixteen), Catch::Contains("equally many"));
}

TEST_CASE("bus bandwidth is nccl-tests'", "[collective]") {
  CHECK(bus_factor(kAllReduce, 8) == Approx(1.75));
  CHECK(bus_factor(kAllGather, 8) == Approx(0.875));
  CHECK(bus_factor(kBroadcast, 8) == Approx(1));
  const CollectiveRow row = row_of(sweep_of(kAllReduce, kRing, 64 * kMiB), cluster_of("dgx-h100", 1));
  CHECK(row.algbw_bytes_per_s == Approx(64.0 * kMiB / row.time.seconds()));
  CHECK(row.busbw_bytes_per_s == Approx(1.75 * row.algbw_bytes_per_s));
}

}  // namespace orrery

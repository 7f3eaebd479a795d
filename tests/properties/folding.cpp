// A folded job is the same machine seen once per class: every rank's spans must be those of the unfolded job,
// to the picosecond.

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "base/random.hpp"
#include "model/program.hpp"
#include "simulator/collective_cost.hpp"
#include "tests/properties/random_program.hpp"
#include "tests/properties/rank_spans.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

// Returns the number of classes of the folded run.
std::size_t check_same(const Program& program, const Cluster& cluster, const Profile& profile,
                       JobOptions options) {
  REQUIRE(verify(program).empty());
  EngineOptions engine;
  engine.max_steps = 4;
  options.fold = true;
  const Timeline folded = orrery::simulate(program, cluster, profile, options, engine);
  options.fold = false;
  const Timeline flat = orrery::simulate(program, cluster, profile, options, engine);
  CHECK(folded.makespan == flat.makespan);
  CHECK(folded.step_time == flat.step_time);
  CHECK(folded.step_start == flat.step_start);
  CHECK(folded.steps == flat.steps);
  const auto a = by_rank(program, folded), b = by_rank(program, flat);
  std::size_t different = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) different += a[rank] != b[rank];
  CHECK(different == 0);
  return folded.classes.size();
}

Profile busy_profile() {
  Profile profile = default_profile(catalogue_gpu("h200").value());  // Launches, latencies and floors.
  profile.compute_interference = 1.145;
  profile.transfer_interference = 1.6;
  return profile;
}

}  // namespace

TEST_CASE("256 ranks, folded and unfolded", "[properties]") {
  const Program program = grid_program({8, 4, 8, 4, 2});
  const std::vector<JobOptions> both{{}, {true, {{RankId(37), 1.3}}}};
  for (const JobOptions& options : both) {
    for (const double oversubscription : {1.0, 4.0}) {
      INFO("stragglers " << options.stragglers.size() << ", oversubscription " << oversubscription);
      const Cluster cluster = cluster_of("dgx-h100", 32, oversubscription, 8);
      const std::size_t classes = check_same(program, cluster, busy_profile(), options);
      if (options.stragglers.empty()) CHECK(classes == 4);
      // Rank 37 is in stage 0 of replica 1. Its replica has it, its mates and, in the other stages, the ranks
      // on its pipeline and beside it; so have the other replicas.
      if (!options.stragglers.empty()) CHECK(classes == 16);
    }
  }
}

TEST_CASE("pods that cut a pipeline or a ring are told apart", "[properties]") {
  const Program program = grid_program({8, 4, 4, 2, 1});
  for (const std::int32_t nodes_per_leaf : {3, 5, 16})
    for (const char* node : {"dgx-h100", "dgx-a100", "dgx-v100", "pcie-l40s"}) {
      Cluster cluster = cluster_of(node, 16, 3, nodes_per_leaf);
      cluster.fabric.hop_latency_s = 300e-9;
      INFO(node << ", " << nodes_per_leaf << " nodes per leaf");
      check_same(program, cluster, busy_profile(), {});
      cluster.fabric.kind = FabricKind::kFatTree;
      check_same(program, cluster, busy_profile(), {});
    }
}

TEST_CASE("random programs on random machines, folded and unfolded", "[properties]") {
  const char* nodes[] = {"dgx-h100", "dgx-v100", "pcie-l40s", "dgx-a100"};
  Random random(20);
  std::size_t folded_cases = 0;
  for (int trial = 0; trial < 150; ++trial) {
    const Grid grid{static_cast<std::int32_t>(random.between(1, 4)),
                    static_cast<std::int32_t>(random.between(1, 3)),
                    static_cast<std::int32_t>(random.between(1, 4))};
    const std::int32_t world = grid.tp * grid.pp * grid.dp;
    const Program program = random_program(random, grid);
    Cluster cluster =
        cluster_of(nodes[random.between(0, 3)], (world + 7) / 8, static_cast<double>(random.between(1, 5)),
                   static_cast<std::int32_t>(random.between(1, 4)));
    cluster.fabric.kind = random.between(0, 1) == 0 ? FabricKind::kRailOptimised : FabricKind::kFatTree;
    if (trial % 3 == 2) randomize_fabric(random, cluster);
    if (trial % 5 == 4 && collective_machine(cluster.node).nvswitch) cluster.nodes_per_nvlink_domain = 2;
    JobOptions options;
    for (std::int64_t n = random.between(0, 2); n-- > 0;)
      options.stragglers.push_back({RankId(random.between(0, world - 1)), 1.0 + random.uniform()});
    INFO("trial " << trial);
    const std::size_t classes =
        check_same(program, cluster, random.between(0, 1) == 0 ? Profile() : busy_profile(), options);
    folded_cases += classes < static_cast<std::size_t>(world);
  }
  CHECK(folded_cases > 40);  // The others are too irregular to fold, which is an answer too.
}

TEST_CASE("ranks that share cores, folded and unfolded", "[properties][cores]") {
  Random random(22);
  std::size_t folded_cases = 0, pooled = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const Grid grid{static_cast<std::int32_t>(random.between(1, 4)),
                    static_cast<std::int32_t>(random.between(1, 3)),
                    static_cast<std::int32_t>(random.between(1, 4))};
    const std::int32_t world = grid.tp * grid.pp * grid.dp;
    const Program program = random_program(random, grid);
    Cluster cluster = cluster_of(trial % 2 == 0 ? "dgx-h100" : "pcie-l40s", (world + 7) / 8);
    cluster.node.cores = static_cast<std::int32_t>(random.between(1, 7));
    Profile profile = random.between(0, 1) == 0 ? Profile() : busy_profile();
    profile.communication_on_core = random.between(0, 2) > 0;
    JobOptions options;
    if (trial % 4 == 3) options.stragglers.push_back({RankId(random.between(0, world - 1)), 1.5});
    INFO("trial " << trial);
    const std::size_t classes = check_same(program, cluster, profile, options);
    folded_cases += classes < static_cast<std::size_t>(world);
    pooled += !make_job(program, cluster, profile, options).core_pools.empty();
  }
  CHECK(folded_cases > 20);
  CHECK(pooled > 40);
}

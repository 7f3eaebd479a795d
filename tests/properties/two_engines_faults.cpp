// Faults of ranks and links on whole machines: folded as unfolded, and in both engines.

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.hpp"
#include "model/program.hpp"
#include "simulator/compare_engines.hpp"
#include "tests/properties/rank_spans.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;
using namespace orrery::testing;
using namespace orrery::time_literals;

namespace {

// Returns the classes of the folded job.
std::size_t check_fold(const Program& program, const Cluster& cluster, const Profile& profile,
                       JobOptions options) {
  options.fold = true;
  const Job folded = make_job(program, cluster, profile, options);
  options.fold = false;
  const Job flat = make_job(program, cluster, profile, options);
  const EngineOptions engine{2, false};
  const Timeline a = run_fast(folded, engine), b = run_fast(flat, engine);
  CHECK(a.makespan == b.makespan);
  CHECK(a.step_time == b.step_time);
  CHECK(a.steps == b.steps);
  CHECK(by_rank(program, a) == by_rank(program, b));
  CHECK(compare_engines(a, run_simgrid(folded, engine)).within(kEngineTolerance));
  return folded.classes.size();
}

Fault some_fault(Random& random, const Program& program, const Cluster& cluster, SimTime makespan) {
  Fault fault;
  fault.rank = RankId(random.between(0, program.world_size() - 1));
  fault.what = static_cast<Fault::What>(random.between(0, 5));
  // A fat tree of one leaf switch has no trunks.
  const bool trunks =
      cluster.fabric.kind == FabricKind::kRailOptimised || cluster.nodes > cluster.fabric.nodes_per_leaf;
  if (fault.what == Fault::What::kUplink && !trunks) fault.what = Fault::What::kLeaf;
  fault.factor = 0.25 * static_cast<double>(random.between(0, 3));
  fault.from = {random.between(0, makespan.picoseconds)};
  if (fault.factor == 0 || random.between(0, 1) == 0)
    fault.until = fault.from + SimTime{random.between(1, makespan.picoseconds)};
  return fault;
}

}  // namespace

TEST_CASE("faults split only the ranks that they tell apart", "[faults]") {
  const Program program = grid_program({8, 2, 4, 2, 1});
  const Cluster cluster = cluster_of("dgx-h100", 8, 1, 8);
  JobOptions options;
  CHECK(check_fold(program, cluster, Profile(), options) == 2);
  options.faults = {{RankId(3), Fault::What::kGpu, 0.5, 1_ms, 2_ms}};
  // The rank, its seven mates, the two stages' other replicas, each split by the rail of the slow rank.
  const std::size_t gpu = check_fold(program, cluster, Profile(), options);
  CHECK(gpu > 2);
  CHECK(gpu <= 16);
  options.faults[0].what = Fault::What::kNic;
  CHECK(check_fold(program, cluster, Profile(), options) <= 16);
}

TEST_CASE("random faults on random machines, folded and unfolded, in both engines", "[faults]") {
  const char* nodes[] = {"dgx-h100", "dgx-a100", "dgx-v100"};
  Random random(7);
  std::size_t folded_cases = 0, felt = 0;
  for (int trial = 0; trial < 50; ++trial) {
    INFO("trial " << trial);
    const Grid grid{static_cast<std::int32_t>(2 * random.between(1, 4)),
                    static_cast<std::int32_t>(random.between(1, 3)),
                    static_cast<std::int32_t>(random.between(2, 4)), 2, 1};
    const std::int32_t world = grid.tp * grid.pp * grid.dp;
    const Program program = grid_program(grid);
    Cluster cluster = cluster_of(nodes[random.between(0, 2)], std::max(2, (world + 7) / 8),
                                 static_cast<double>(random.between(1, 3)), 2);
    cluster.fabric.kind = random.between(0, 1) == 0 ? FabricKind::kRailOptimised : FabricKind::kFatTree;
    if (trial % 3 == 2) randomize_fabric(random, cluster);
    Profile profile = default_profile(cluster.node.gpu);
    if (trial % 2 == 0) profile.transfer_interference = 1.5;
    JobOptions options;
    const SimTime before = orrery::simulate(program, cluster, profile, options, {2, false}).makespan;
    for (std::int64_t n = random.between(1, 3); n-- > 0;)
      options.faults.push_back(some_fault(random, program, cluster, before));
    folded_cases += check_fold(program, cluster, profile, options) < static_cast<std::size_t>(world);
    felt += orrery::simulate(program, cluster, profile, options, {2, false}).makespan > before;
  }
  CHECK(folded_cases > 25);
  CHECK(felt > 15);  // Others come late, or to links that nobody waits for.
}

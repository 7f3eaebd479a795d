// Runs under faults with each policy, on machines small enough to add up what they take.

#include "planner/remap.hpp"

#include <catch2/catch.hpp>

#include "planner/lower.hpp"
#include "planner/route_around.hpp"
#include "tests/planner/shapes.hpp"
#include "tests/simulator/machines.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;
using namespace time_literals;

const Graph& graph() {
  static const Graph kGraph = [] {
    TransformerConfig config = small_llama();
    config.kv_heads = 8;  // So that a node of eight GPUs is one tensor-parallel group.
    return build_training_graph(config, DType::kBf16);
  }();
  return kGraph;
}

RemapOptions options_with(std::vector<Fault> faults, std::int64_t steps = 200) {
  RemapOptions options;
  options.steps = steps;
  options.job.faults = std::move(faults);
  options.job.watchdog = 10'000_ms;
  options.costs.detect_loss_s = 0.1;
  options.costs.detect_network_s = 0.2;
  options.costs.init_per_rank_s = 1e-4;
  options.engine = [](const Job& job, EngineCounters* counters) { return run_fast(job, {}, counters); };
  return options;
}

RemapRun run(RemapPolicy policy, const Plan& plan, const Cluster& cluster, const RemapOptions& options) {
  return run_policy(policy, graph(), plan, cluster, Profile(), options);
}

double steady(const Plan& plan, const Cluster& cluster) {
  return orrery::simulate(lower(graph(), plan), cluster, Profile()).step_time.seconds();
}

// What the parts of a run come to is what it takes.
void check_sum(const RemapRun& run) {
  double sum_s = 0;
  for (const RemapStretch& stretch : run.stretches) sum_s += (stretch.until - stretch.from).seconds();
  for (const RemapPause& pause : run.pauses) sum_s += pause.rebuild_s + pause.lower_s + pause.move_s;
  CHECK(sum_s == Approx(run.total_s).epsilon(1e-9));
}

}  // namespace

TEST_CASE("a lost node: static hangs, re-group is the plan of the smaller cluster", "[remap]") {
  const Cluster four = testing::cluster_of("dgx-h100", 4), three = testing::cluster_of("dgx-h100", 3);
  const Plan plan = expand(shorthand(8, 1, 4, 6), graph(), 32);
  const Plan smaller = expand(shorthand(8, 1, 3, 8), graph(), 24);
  REQUIRE(plan.global_batch() == smaller.global_batch());
  const double before_s = steady(plan, four), after_s = steady(smaller, three);
  const SimTime loss = from_seconds(20.5 * before_s);
  const RemapOptions options = options_with({{RankId(24), Fault::What::kNode, 0, loss, {}}});

  const RemapRun left = run(RemapPolicy::kStatic, plan, four, options);
  CHECK(left.before_s == before_s);
  CHECK_FALSE(left.during_s);
  CHECK_FALSE(left.after_s);
  REQUIRE(left.hang);
  CHECK(left.steps >= 19);
  CHECK(left.steps <= 21);
  CHECK(left.hang->step == left.steps);
  CHECK(left.total_s == left.hang->until.seconds());
  CHECK(left.total_s == Approx(loss.seconds() + 10).margin(2 * before_s));

  const RemapRun re_ring = run(RemapPolicy::kReRing, plan, four, options);
  CHECK(re_ring.hang);
  CHECK_FALSE(re_ring.refused.empty());

  const RemapRun moved = run(RemapPolicy::kReGroup, plan, four, options);
  CHECK(moved.steps == 200);
  CHECK_FALSE(moved.hang);
  REQUIRE(moved.after_s);
  CHECK(*moved.after_s == after_s);
  CHECK(moved.sequences == 200 * plan.global_batch());
  REQUIRE(moved.pauses.size() == 1);
  const RemapPause& pause = moved.pauses.front();
  CHECK(pause.reason == "node of rank 24 lost");
  CHECK(pause.detect_s == Approx(0.1).margin(before_s));
  CHECK(pause.lost_s < 2 * before_s);
  CHECK(pause.lost_steps == 0);  // Replicas have all state.
  CHECK(pause.move_s == 0);
  REQUIRE(moved.stretches.size() == 2);
  CHECK(moved.stretches[1].gpus == 24);
  check_sum(moved);
  const double expected_s = loss.seconds() + 0.1 + pause.rebuild_s + pause.lower_s +
                            static_cast<double>(moved.stretches[1].steps) * after_s;
  CHECK(moved.total_s == Approx(expected_s).margin(2 * after_s));
}

TEST_CASE("a spare node takes over, with its state; the node that comes back is as at first", "[remap]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 3);
  PlanShorthand short_plan = shorthand(8, 1, 2, 6);
  const Plan plan = expand(short_plan, graph(), 24);
  const double before_s = steady(plan, cluster);
  const RemapOptions options =
      options_with({{RankId(0), Fault::What::kNode, 0, from_seconds(10.5 * before_s), {}}});
  const RemapRun moved = run(RemapPolicy::kReGroup, plan, cluster, options);
  CHECK(moved.steps == 200);
  REQUIRE(moved.after_s);
  CHECK(*moved.after_s == Approx(before_s).epsilon(0.02));
  REQUIRE(moved.pauses.size() == 1);
  CHECK(moved.pauses[0].move_s > 0);
  CHECK(moved.pauses[0].rebuild_s > options.costs.load_kernels_s);
  CHECK(moved.stretches[1].replicas == 2);
  check_sum(moved);
}

TEST_CASE("divided state goes back to the checkpoint", "[remap]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 2);
  PlanShorthand short_plan = shorthand(4, 1, 4, 3);
  short_plan.settings.zero_stage = 1;
  const Plan plan = expand(short_plan, graph(), 16);
  const double before_s = steady(plan, cluster);
  RemapOptions options =
      options_with({{RankId(5), Fault::What::kGpu, 0, from_seconds(34.5 * before_s), {}}}, 100);
  options.checkpoint_every = 20;
  const RemapRun moved = run(RemapPolicy::kReGroup, plan, cluster, options);
  REQUIRE(moved.pauses.size() == 1);
  // Some 34 steps are done, the checkpoint is of the 20th.
  CHECK(moved.pauses[0].lost_steps == moved.stretches[0].steps - 20);
  CHECK(moved.pauses[0].lost_steps >= 12);
  CHECK(moved.pauses[0].lost_s > static_cast<double>(moved.pauses[0].lost_steps) * before_s);
  CHECK(moved.steps == 100);
  CHECK(moved.stretches[0].steps + moved.stretches[1].steps == 100 + moved.pauses[0].lost_steps);
  check_sum(moved);
}

TEST_CASE("a slow network card is gone around and used again when it is back", "[remap]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 2);
  const Plan plan = expand(shorthand(8, 1, 2, 1), graph(), 16);
  const double before_s = steady(plan, cluster);
  const SimTime from = from_seconds(50 * before_s), until = from_seconds(20'000 * before_s);
  const RemapOptions options = options_with({{RankId(3), Fault::What::kNic, 0.02, from, until}}, 40'000);
  const RemapRun left = run(RemapPolicy::kStatic, plan, cluster, options);
  CHECK(left.steps == 40'000);
  CHECK(*left.during_s > before_s);
  CHECK(left.after_s == left.during_s);
  CHECK(*left.returned_s == before_s);
  const RemapRun around = run(RemapPolicy::kReRing, plan, cluster, options);
  CHECK(*around.after_s < *left.during_s);
  CHECK(*around.after_s >= before_s);
  CHECK(around.total_s < left.total_s);
  CHECK(*around.returned_s >= before_s);
  REQUIRE(around.stretches.size() >= 2);
  CHECK(around.stretches[1].relayed == 1);
  CHECK(around.pauses[0].detect_s == 0);
  check_sum(around);
}

TEST_CASE("a flap that is over before it is noticed costs its own length", "[remap]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 2);
  const Plan plan = expand(shorthand(8, 1, 2, 3), graph(), 16);
  const double before_s = steady(plan, cluster);
  const SimTime from = from_seconds(10 * before_s);
  const RemapOptions options = options_with({{RankId(3), Fault::What::kNic, 0, from, from + 150_ms}}, 60);
  for (const RemapPolicy policy : {RemapPolicy::kStatic, RemapPolicy::kReRing}) {
    const RemapRun flapped = run(policy, plan, cluster, options);
    CHECK(flapped.steps == 60);
    CHECK(flapped.pauses.empty());
    CHECK(flapped.total_s > 60 * before_s);
    CHECK(flapped.total_s < 62 * before_s + 0.15);
  }
}

TEST_CASE("a lost network card: the ring goes around, with a pause of its detection", "[remap]") {
  const Cluster cluster = testing::cluster_of("dgx-h100", 2);
  const Plan plan = expand(shorthand(8, 1, 2, 3), graph(), 16);
  const double before_s = steady(plan, cluster);
  const RemapOptions options =
      options_with({{RankId(3), Fault::What::kNic, 0, from_seconds(10 * before_s), {}}}, 60);
  CHECK(run(RemapPolicy::kStatic, plan, cluster, options).hang);
  const RemapRun around = run(RemapPolicy::kReRing, plan, cluster, options);
  CHECK(around.steps == 60);
  REQUIRE(around.pauses.size() == 1);
  CHECK(around.pauses[0].detect_s <= 0.2);
  CHECK(around.pauses[0].detect_s > 0.2 - 2 * before_s);
  CHECK(around.pauses[0].lower_s == 0);
  // Both replicas have rank 3's rail, so re-group is left with one of them.
  const RemapRun grouped = run(RemapPolicy::kReGroup, plan, cluster, options);
  CHECK(grouped.stretches.back().gpus == 8);
  CHECK(grouped.steps == 60);
}

TEST_CASE("what is slow is gone around by the card that leaves most", "[remap]") {
  const Router router(testing::cluster_of("dgx-h100", 2));
  const auto relays = [&](const std::vector<Fault>& faults) { return route_around(router, faults).relay; };
  using enum Fault::What;
  CHECK(relays({{RankId(3), kGpu, 0.5, {}, {}}}).empty());
  const auto one = relays({{RankId(3), kNic, 0.1, {}, {}}});
  REQUIRE(one.size() == 16);
  CHECK(one[3] == 2);
  CHECK(one[4] == 4);
  // Half a card of one's own is as good as half of another's.
  CHECK(relays({{RankId(3), kNic, 0.5, {}, {}}}).empty());
  // Two lost ones don't share a third.
  const auto two = relays({{RankId(3), kNic, 0, {}, {}}, {RankId(4), kNic, 0, {}, {}}});
  CHECK(two[3] == 2);
  CHECK(two[4] == 5);
  // A whole rail: both nodes go around.
  const auto rail = relays({{RankId(3), kLeaf, 0, {}, {}}});
  CHECK(rail[3] == 2);
  CHECK(rail[11] == 10);
}

TEST_CASE("a slow cable between two GPUs is left out of rings", "[remap]") {
  const Router router(testing::cluster_of("dgx-v100-mesh", 1));
  const std::vector<Fault> faults = {{RankId(0), Fault::What::kNvLink, 0.1, {}, {}, RankId(1)}};
  const std::vector<std::int32_t> position = route_around(router, faults).ring_position;
  REQUIRE(position.size() == 8);
  const std::int32_t apart = (position[0] - position[1] + 8) % 8;
  CHECK(apart != 1);
  CHECK(apart != 7);
}

TEST_CASE("communicators cost a part of their own and one per rank", "[remap]") {
  const Program program = lower(graph(), expand(shorthand(2, 1, 4, 2), graph(), 8));
  RemapCosts costs;
  costs.init_base_s = 1;
  costs.init_per_rank_s = 0.01;
  double expected = 0;
  for (const Axis& axis : program.axes) expected += 1 + 0.01 * static_cast<double>(axis.groups[0].size());
  CHECK(rebuild_seconds(program, costs) == Approx(expected));
  CHECK(program.axes.size() >= 2);  // Tensor and data parallel.
}

}  // namespace orrery

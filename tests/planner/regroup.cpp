// Plans without lost ranks.

#include "planner/regroup.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;

constexpr std::int32_t kPerNode = 8;

const Graph& graph() {
  static const Graph kGraph = build_training_graph(small_llama(), DType::kBf16);
  return kGraph;
}

Regrouped without(const Plan& plan, const std::vector<RankId>& lost, bool keep_batch = true) {
  Regrouped found = regroup(plan, graph(), lost, kPerNode, keep_batch);
  CHECK(check(found.plan, graph()).empty());
  CHECK(found.plan.world_size() == plan.world_size());
  for (const RankId rank : lost)
    CHECK(std::find(found.plan.idle.begin(), found.plan.idle.end(), rank) != found.plan.idle.end());
  return found;
}

std::vector<std::int64_t> microbatches(const Plan& plan) {
  std::vector<std::int64_t> all;
  for (const PipelineReplica& replica : plan.replicas) all.push_back(replica.microbatches);
  return all;
}

}  // namespace

TEST_CASE("a wounded replica goes and the others do its work", "[regroup]") {
  const Plan plan = expand(shorthand(2, 1, 4, 6), graph(), 8);
  const Regrouped found = without(plan, {RankId(5)});
  CHECK(found.dropped == 1);
  CHECK(found.moved.empty());
  CHECK(found.covered);
  CHECK(microbatches(found.plan) == std::vector<std::int64_t>{8, 8, 8});  // 24 over three.
  CHECK(found.plan.global_batch() == plan.global_batch());
  CHECK(found.plan.idle == std::vector<RankId>{RankId(4), RankId(5)});
  // As evenly as can be: 20 micro-batches are 7, 7 and 6.
  CHECK(microbatches(without(expand(shorthand(2, 1, 4, 5), graph(), 8), {RankId(5)}).plan) ==
        std::vector<std::int64_t>{7, 7, 6});
  const Regrouped shrunk = without(plan, {RankId(5)}, false);
  CHECK(microbatches(shrunk.plan) == std::vector<std::int64_t>{6, 6, 6});
  CHECK(shrunk.plan.global_batch() == plan.global_batch() * 3 / 4);
}

TEST_CASE("a spare group takes the place of a lost one", "[regroup]") {
  PlanShorthand short_plan = shorthand(2, 1, 3, 6);
  const Plan plan = expand(short_plan, graph(), 8);  // Ranks 6 and 7 idle.
  const Regrouped found = without(plan, {RankId(0)});
  CHECK(found.dropped == 0);
  CHECK(found.moved == std::vector<RankId>{RankId(6), RankId(7)});
  CHECK(found.plan.replicas[0].stages[0].ranks == std::vector<RankId>{RankId(6), RankId(7)});
  CHECK(microbatches(found.plan) == microbatches(plan));
  // A spare that is lost too is none.
  CHECK(without(plan, {RankId(0), RankId(7)}).dropped == 1);
}

TEST_CASE("two wounded pipelines make a whole one", "[regroup]") {
  // Rank = d + 4 · stage: replica 1 loses its first stage, replica 2 its second.
  const Plan plan = expand(shorthand(1, 2, 4, 6), graph(), 8);
  const Regrouped found = without(plan, {RankId(1), RankId(6)});
  CHECK(found.dropped == 1);
  REQUIRE(found.plan.replicas.size() == 3);
  // Replica 1 gets rank 2, which was the first stage of replica 2.
  CHECK(found.plan.replicas[1].stages[0].ranks == std::vector<RankId>{RankId(2)});
  CHECK(found.plan.replicas[1].stages[1].ranks == std::vector<RankId>{RankId(5)});
  CHECK(found.moved == std::vector<RankId>{RankId(2)});
}

TEST_CASE("where replicas have to be alike, more of them go", "[regroup]") {
  PlanShorthand short_plan = shorthand(1, 1, 4, 2);
  short_plan.settings.zero_stage = 2;
  // Eight micro-batches over three replicas aren't alike; over two they are.
  const Regrouped found = without(expand(short_plan, graph(), 4), {RankId(3)});
  CHECK(microbatches(found.plan) == std::vector<std::int64_t>{4, 4});
  CHECK(found.dropped == 2);
}

TEST_CASE("divided state is lost with a rank unless another group has it", "[regroup]") {
  PlanShorthand short_plan = shorthand(1, 1, 4, 3);
  short_plan.settings.zero_stage = 1;
  CHECK_FALSE(without(expand(short_plan, graph(), 4), {RankId(3)}).covered);
  short_plan.settings.zero_group = 2;  // Ranks 1 and 3 have the same half.
  // Three replicas can't be divided into groups of two, so another one goes.
  const Regrouped found = without(expand(short_plan, graph(), 4), {RankId(3)});
  CHECK(found.covered);
  CHECK(found.dropped == 2);
  CHECK_FALSE(without(expand(short_plan, graph(), 4), {RankId(1), RankId(3)}).covered);
}

TEST_CASE("no replica left is an error", "[regroup]") {
  const Plan plan = expand(shorthand(2, 1, 2, 2), graph(), 4);
  const std::vector<RankId> lost = {RankId(0), RankId(2)};
  CHECK_THROWS_AS(regroup(plan, graph(), lost, kPerNode, true), Error);
}

}  // namespace orrery

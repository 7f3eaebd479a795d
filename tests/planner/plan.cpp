#include "planner/plan.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/planner/shapes.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;

std::string failure(const PlanShorthand& plan, const Graph& graph, std::int32_t gpus) {
  try {
    expand(plan, graph, gpus);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInfeasible);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("degrees expand with tensor parallelism innermost, then data, then pipeline", "[planner][plan]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  const Plan plan = expand(shorthand(2, 2, 2, 4), graph, 8);
  REQUIRE(plan.replicas.size() == 2);
  CHECK(plan.replicas[0].stages[0].ranks == std::vector{RankId(0), RankId(1)});
  CHECK(plan.replicas[1].stages[0].ranks == std::vector{RankId(2), RankId(3)});
  CHECK(plan.replicas[0].stages[1].ranks == std::vector{RankId(4), RankId(5)});
  CHECK(plan.replicas[0].microbatches == 4);
  // Embedding and two layers; two layers, final norm, head and loss.
  CHECK(plan.replicas[0].stages[0].last_block == 3);
  CHECK(plan.replicas[0].stages[1].last_block == 6);
  CHECK(plan.world_size() == 8);
  CHECK(plan.global_batch() == 16);
}

TEST_CASE("dp fills the cluster when it isn't given; a given one may leave GPUs idle", "[planner][plan]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  PlanShorthand plan = shorthand(2, 1, 0, 4);
  plan.global_batch = 32;
  CHECK(expand(plan, graph, 8).replicas.size() == 4);
  const Plan partly = expand(shorthand(2, 1, 3, 4), graph, 8);
  CHECK(partly.idle == std::vector{RankId(6), RankId(7)});
}

TEST_CASE("a plan that can't work says which constraint fails and what would mend it", "[planner][plan]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  CHECK_THAT(
      failure(shorthand(3, 1, 1, 4), graph, 3),
      Catch::Contains("plan.tp: 8 heads don't divide by tp 3 (remainder 2)") && Catch::Contains("use tp 2"));
  CHECK_THAT(failure(shorthand(8, 1, 1, 4), graph, 8), Catch::Contains("4 kv_heads don't divide by tp 8"));
  CHECK_THAT(failure(shorthand(1, 3, 1, 4), graph, 3),
             Catch::Contains("4 layers don't divide over 3 stages") &&
                 Catch::Contains("layers_per_stage: [1, 2, 1]"));
  CHECK_THAT(failure(shorthand(1, 5, 1, 4), graph, 5), Catch::Contains("5 stages but only 4 layers"));
  CHECK_THAT(failure(shorthand(2, 2, 4, 4), graph, 8),
             Catch::Contains("needs 16 GPUs, the cluster has 8") && Catch::Contains("dp at most 2"));
  PlanShorthand odd = shorthand(1, 1, 4, 2);
  odd.global_batch = 12;
  CHECK_THAT(failure(odd, graph, 4), Catch::Contains("nearest that do: 8 or 16"));
  PlanShorthand uneven = shorthand(1, 2, 1, 2);
  uneven.layers_per_stage = {3, 2};
  CHECK_THAT(failure(uneven, graph, 2), Catch::Contains("sums to 5, the model has 4 layers (1 too many)"));
  PlanShorthand scattered = shorthand(2, 1, 1, 2);
  scattered.settings.sequence_parallel = true;
  scattered.settings.sequence = 255;
  CHECK_THAT(failure(scattered, graph, 2), Catch::Contains("sequence 255 doesn't divide by tp 2"));
}

TEST_CASE("a step of too many instructions is refused before it is written out", "[planner][plan]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  CHECK_THAT(
      failure(shorthand(1, 1, 1, 1'000'000), graph, 1),
      Catch::Contains("1,000,000 micro-batches of 4 layers") && Catch::Contains("raise dp or microbatch"));
}

TEST_CASE("every fault of a hand-written plan is found at once", "[planner][plan]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  Plan plan = expand(shorthand(1, 2, 2, 2), graph, 4);
  REQUIRE(check(plan, graph).empty());
  plan.replicas[0].stages[1].first_block += 1;     // A hole.
  plan.replicas[1].stages[0].ranks = {RankId(0)};  // Used twice, and rank 1 by nobody.
  plan.replicas[1].microbatches = 0;
  CHECK(check(plan, graph).size() == 3);
}

TEST_CASE("tensor parallelism across nodes and padding are warnings", "[planner][plan]") {
  TransformerConfig config = small_llama();
  config.vocab = 2000;
  const Graph graph = build_training_graph(config, DType::kBf16);
  Cluster cluster;
  cluster.node.gpus = 2;
  cluster.nodes = 2;
  const auto found = warnings(expand(shorthand(4, 1, 1, 2), graph, 4), graph, cluster);
  REQUIRE(found.size() == 2);
  CHECK_THAT(found[0], Catch::Contains("tensor-parallel groups of 4 cross nodes of 2 GPUs"));
  CHECK_THAT(found[1], Catch::Contains("padded from 2000 to 2048"));
}

}  // namespace orrery

// Ops placed on devices one by one compute the loss and the gradients of the whole graph, whichever strategy
// places them.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <map>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planner/partition_lower.hpp"
#include "simulator/engine.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery {
namespace {

struct Drawn {
  Cluster cluster;
  PlanShorthand plan;
  PartitionStrategy strategy = PartitionStrategy::kPerLayer;
  PieceLimits limits;
  std::string text;
};

template <class T>
T pick(Random& random, std::initializer_list<T> from) {
  return *(from.begin() + random.between(0, static_cast<std::int64_t>(from.size()) - 1));
}

Drawn draw(Random& random) {
  Drawn drawn;
  const std::string node = pick<std::string>(random, {"dgx-v100-mesh", "pcie-a100-bridged", "own"});
  drawn.cluster.nodes = static_cast<std::int32_t>(random.between(1, 2));
  if (node == "own") {
    NodeShape shape;
    shape.gpus = static_cast<std::int32_t>(random.between(1, 5));
    drawn.cluster.node = make_node(shape, catalogue_gpu("a100-pcie-80gb").value());
  } else {
    drawn.cluster.node = catalogue_node(node).value();
  }
  Plan& settings = drawn.plan.settings;
  settings.compute_dtype = node == "dgx-v100-mesh" ? DType::kFp16 : DType::kBf16;
  settings.sequence = 8;
  settings.microbatch_size = random.between(1, 2);
  settings.expert_imbalance = 2;  // Room for every token at one expert: four experts, two picks.
  settings.kernel_set =
      pick<std::string>(random, {"reference", "orrery-cuda", "orrery-cuda-packed", "megatron"});
  settings.vocab_multiple = pick<std::int64_t>(random, {1, 8});
  drawn.plan.global_batch = settings.microbatch_size * random.between(1, 6);
  drawn.strategy = all_partition_strategies()[static_cast<std::size_t>(random.between(0, 2))];
  drawn.limits.min = static_cast<std::int32_t>(pick<std::int64_t>(random, {1, 8, 20, 60}));
  drawn.limits.max = static_cast<std::int32_t>(pick<std::int64_t>(random, {30, 80, 1'000'000}));
  drawn.text =
      fmt::format("{} on {} x {} ({} GPUs), pieces {} to {}, batch {} of {}, {}", to_string(drawn.strategy),
                  drawn.cluster.nodes, node, drawn.cluster.gpu_count(), drawn.limits.min, drawn.limits.max,
                  drawn.plan.global_batch, settings.microbatch_size, settings.kernel_set);
  return drawn;
}

void check_drawn(const TransformerConfig& config, const Drawn& drawn, bool placed) {
  const Plan& settings = drawn.plan.settings;
  const Graph graph = build_training_graph(config, settings.compute_dtype);
  const Profile profile = default_profile(drawn.cluster.node.gpu);
  const PartitionProblem problem(graph, drawn.plan, drawn.cluster, profile);
  Program program = lower_partition(problem, make_partition(problem, drawn.strategy, drawn.limits));
  const auto faults = verify(program);
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  REQUIRE(faults.empty());
  // Throws where devices wait for each other.
  CHECK(simulate(program, drawn.cluster, profile).step_time > SimTime{});
  if (placed) place_buffers(program);
  const Sizes sizes = bind(graph, settings.microbatch_size, settings.sequence, settings.expert_slot_factor());
  test::check_program(graph, program, sizes, drawn.plan.global_batch / settings.microbatch_size);
}

// As for random plans.
#ifdef ORRERY_SANITIZED
constexpr int kPartitions = 20;
#else
constexpr int kPartitions = 60;
#endif

}  // namespace

TEST_CASE("random partitions compute the loss and gradients of the whole graph", "[executor][partition]") {
  Random random(20261130);
  const std::array<TransformerConfig, 4> models = {test::tiny_llama(), test::tiny_gpt(), test::tiny_moe(),
                                                   test::tiny_latent()};
  std::map<PartitionStrategy, int> of_strategy;
  int done = 0, refused = 0;
  while (done < kPartitions) {
    const TransformerConfig& config = models[static_cast<std::size_t>(done) % models.size()];
    const Drawn drawn = draw(random);
    INFO(fmt::format("partition {}: {}, {}", done, config.name, drawn.text));
    try {
      check_drawn(config, drawn, done % 2 == 0);
    } catch (const Error& error) {
      // Limits that no piece can keep; such a draw says nothing.
      if (error.kind() != ErrorKind::kInfeasible) FAIL(error.what());
      REQUIRE(++refused < 500);
      continue;
    }
    ++of_strategy[drawn.strategy];
    ++done;
  }
  for (const PartitionStrategy strategy : all_partition_strategies())
    CHECK(of_strategy[strategy] >= kPartitions / 6);
}

}  // namespace orrery

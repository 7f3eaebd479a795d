// The memory table of docs/user-guide/memory.md: recompute and accumulation.

#include <catch2/catch.hpp>

#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "scenarios/scenario.hpp"

using namespace orrery;

namespace {

struct Store {
  double activations = 0, gradients = 0, microbatches = 0;
};

// At the peak of activations, which is at the end of a forward.
Store store_of(const Overrides& overrides) {
  const Scenario scenario = load_scenario(
      std::filesystem::path(ORRERY_SOURCE_DIR) / "scenarios" / "recompute-tensors.yaml", overrides);
  const Graph graph = build_training_graph(scenario.model, DType::kBf16);
  const Plan plan = expand(scenario.plan, graph, scenario.cluster.gpu_count());
  const Program program = lower(graph, plan);
  Store store;
  for (const MemoryPoint& point : memory_timeline(program.roles[0])) {
    const auto of = [&](MemoryCategory category) {
      return static_cast<double>(point.by_category[static_cast<std::size_t>(category)]);
    };
    store.activations = std::max(store.activations, of(MemoryCategory::kActivations));
    store.gradients = std::max(store.gradients, of(MemoryCategory::kGradients));
  }
  store.microbatches = static_cast<double>(plan.replicas[0].microbatches);
  return store;
}

}  // namespace

TEST_CASE("recompute takes a third of the activations, accumulation a quarter of the gradients",
          "[scenarios]") {
  const Store none = store_of({"plan.recompute=none", "global_batch=8"});
  const Store accumulated = store_of({"plan.recompute=none"});
  const Store both = store_of({});
  CHECK(none.microbatches == 1);
  CHECK(accumulated.microbatches == 4);
  // Four micro-batches one after another hold the activations of one and add into one gradient: the store is
  // a quarter of what four gradients kept apart would take, not of what one micro-batch has.
  CHECK(accumulated.activations == none.activations);
  CHECK(accumulated.gradients == none.gradients);
  CHECK(both.gradients == none.gradients);
  // Llama 3 8B keeps 8h + 4ad + 4gd + 4a + 6f = 139,392 bytes a token and layer, without the norms' outputs
  // (4h) and the MLP's (6f) 36,992: 32 · 4096 times that are 18.27e9 and 4.85e9. The head adds the last
  // layer's output, the final norm's and the logits (2h + 2h + 2 · 128,256 a token) in both: 1.12e9.
  CHECK(none.activations == Approx(19.39e9).epsilon(0.005));
  CHECK(both.activations == Approx(5.97e9).epsilon(0.005));
}

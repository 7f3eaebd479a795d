// Every lowered plan computes the loss and the gradients of the whole graph: the Program of all ranks, run
// instruction by instruction in double precision, against the graph run as it is.
#include <catch2/catch.hpp>

#include <array>
#include <map>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planner/lower.hpp"
#include "planner/recompute.hpp"
#include "tests/executor/random_plans.hpp"
#include "tests/executor/tiny_models.hpp"
#include "tests/executor/whole_step.hpp"

namespace orrery {
namespace {

using test::check_program;
using test::describe;
using test::draw;
using test::Drawn;

void check_plan(const TransformerConfig& config, const PlanShorthand& shorthand, std::int32_t gpus,
                bool placed) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  const Plan plan = expand(shorthand, graph, gpus);
  Program program = lower(graph, plan);
  const auto faults = verify(program);
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  REQUIRE(faults.empty());
  if (placed) place_buffers(program);
  const Sizes sizes = bind(graph, plan.microbatch_size, plan.sequence, plan.expert_slot_factor());
  const std::int64_t microbatches = plan.global_batch() / plan.microbatch_size;
  check_program(graph, program, sizes, microbatches);
}

}  // namespace

TEST_CASE("one rank computes the graph", "[executor]") {
  PlanShorthand plan;
  plan.dp = 1;
  plan.settings.sequence = 8;
  plan.global_batch = 2;
  check_plan(test::tiny_llama(), plan, 1, true);
  check_plan(test::tiny_gpt(), plan, 1, false);
}

// Sanitizers make a plan ten times as slow; they look for other faults than wrong gradients.
#ifdef ORRERY_SANITIZED
constexpr int kPlans = 60;
#else
constexpr int kPlans = 240;
#endif
TEST_CASE("keys and values that travel round a ring meet every query", "[executor]") {
  TransformerConfig windowed = test::tiny_llama();
  windowed.local.window = 3;
  windowed.local.layers = {true, false, true, false, true, false, true, false};
  TransformerConfig chunked = test::tiny_llama();
  chunked.local.chunk = 2;
  TransformerConfig sinks = test::tiny_llama();
  sinks.attention_sinks = true;
  for (const TransformerConfig& config :
       {test::tiny_llama(), test::tiny_gpt(), test::tiny_latent(), windowed, chunked, sinks}) {
    for (const std::int32_t tp : {1, 2}) {
      for (const ContextForm form : {ContextForm::kAllGather, ContextForm::kRing}) {
        PlanShorthand plan;
        plan.tp = tp;
        plan.dp = 1;
        plan.global_batch = 1;
        plan.settings.context_parallel = 4;
        plan.settings.context_form = form;
        plan.settings.sequence = 16;
        plan.settings.sequence_parallel = tp > 1;
        plan.settings.expert_capacity_factor = 2;
        INFO(fmt::format("{}, window {}, chunk {}, tp {}, {}", config.name, config.local.window,
                         config.local.chunk, tp, to_string(form)));
        check_plan(config, plan, 4 * tp, true);
      }
    }
  }
}

// An expert's matrices over fewer ranks than attention's: expert parallelism reaches over the rest of them.
TEST_CASE("experts with a tensor-parallel degree of their own compute the graph", "[executor]") {
  for (const std::int32_t expert_tensor : {1, 2, 4}) {
    for (const std::int32_t ep : {1, 2, 4}) {
      PlanShorthand plan;
      plan.tp = 4;
      plan.dp = 2;
      plan.global_batch = 4;
      plan.settings.expert_parallel = ep;
      plan.settings.expert_tensor = expert_tensor;
      plan.settings.expert_capacity_factor = 2;
      plan.settings.sequence = 8;
      plan.settings.sequence_parallel = true;
      plan.settings.zero_stage = ep == 2 ? 3 : 1;
      INFO("etp " << expert_tensor << ", ep " << ep);
      try {
        check_plan(test::tiny_latent(), plan, 8, true);
      } catch (const Error& error) {
        INFO(error.what());
        CHECK(ep * expert_tensor > 8);  // More ranks than there are.
      }
    }
  }
}

TEST_CASE("ranks compute the same on whatever devices they are", "[executor]") {
  PlanShorthand plan;
  plan.tp = plan.pp = plan.dp = 2;
  plan.global_batch = 8;
  plan.settings.sequence = 8;
  const Graph graph = build_training_graph(test::tiny_llama(), DType::kBf16);
  Plan placed = expand(plan, graph, 8);
  placed.device_of = {5, 0, 7, 2, 4, 1, 6, 3};
  const Program program = lower(graph, placed);
  REQUIRE(verify(program).empty());
  check_program(graph, program,
                bind(graph, placed.microbatch_size, placed.sequence, placed.expert_slot_factor()),
                placed.global_batch() / placed.microbatch_size);
}

TEST_CASE("random plans compute the loss and gradients of the whole graph", "[executor]") {
  Random random(20260211);
  std::map<std::string, int> of_schedule;
  const std::array<TransformerConfig, 5> models = {test::tiny_llama(), test::tiny_gpt(), test::tiny_moe(),
                                                   test::tiny_latent(), test::tiny_parallel()};
  int done = 0, refused = 0;
  while (done < kPlans) {
    const TransformerConfig config = models[static_cast<std::size_t>(done) % models.size()];
    const std::vector<std::string> names = recompute_names(build_training_graph(config, DType::kBf16));
    const Drawn drawn = draw(random, config.experts.count > 0, names);
    const Plan& settings = drawn.plan.settings;
    INFO("plan " << done << ": " << config.name << " " << describe(drawn));
    try {
      check_plan(config, drawn.plan, drawn.gpus, done % 2 == 0);
    } catch (const Error& error) {
      // Schedules have constraints on ranks and micro-batches; such a draw says nothing.
      if (error.kind() != ErrorKind::kInfeasible) FAIL(error.what());
      ++refused;
      REQUIRE(refused < 5000);
      continue;
    }
    ++of_schedule[std::string(to_string(settings.schedule))];
    ++done;
  }
  for (const PipelineSchedule kind : all_pipeline_schedules()) {
    INFO(to_string(kind));
    CHECK(of_schedule[std::string(to_string(kind))] >= kPlans / 60);
  }
}

}  // namespace orrery

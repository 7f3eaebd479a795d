// Every lowered plan computes the loss and the gradients of the whole graph: the Program of all ranks, run
// instruction by instruction in double precision, against the graph run as it is.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/random.hpp"
#include "executor/host/step.hpp"
#include "planner/lower.hpp"
#include "planner/memory_plan.hpp"
#include "tests/executor/tiny_models.hpp"

namespace orrery {
namespace {

using host::Values;

struct Whole {
  std::vector<double> losses;
  std::vector<Values> gradients;
};

// A whole tensor of seeded values, and whole ids of one micro-batch.
Values seeded(const Graph& graph, const Sizes& sizes, TensorId tensor, std::uint64_t seed,
              std::int64_t vocab) {
  Random random(seed * 7919 + static_cast<std::uint64_t>(tensor.value));
  Values values(static_cast<std::size_t>(element_count(graph, tensor, sizes)));
  const bool ids = graph[tensor].kind == TensorKind::kInput;
  for (double& x : values)
    x = ids ? static_cast<double>(random.between(0, vocab - 1)) : random.uniform() - 0.4;
  return values;
}

std::int64_t vocabulary(const Graph& graph) {
  for (const Dim& dim : graph.dims) {
    if (dim.role == DimRole::kVocab) return dim.size;
  }
  return 0;
}

std::vector<Values> parameters(const Graph& graph, const Sizes& sizes) {
  std::vector<Values> all(graph.tensors.size());
  for (std::size_t t = 0; t < all.size(); ++t) {
    const TensorKind kind = graph.tensors[t].kind;
    if (kind != TensorKind::kParameter && kind != TensorKind::kBuffer) continue;
    all[t] = seeded(graph, sizes, TensorId(static_cast<std::int64_t>(t)), 1, 0);
  }
  return all;
}

Values input_of(const Graph& graph, const Sizes& sizes, std::int32_t microbatch, TensorId tensor) {
  return seeded(graph, sizes, tensor, 100 + static_cast<std::uint64_t>(microbatch), vocabulary(graph));
}

// The graph itself, micro-batch after micro-batch.
Whole run_whole(const Graph& graph, const Sizes& sizes, std::int64_t microbatches) {
  Whole whole;
  const std::vector<Values> weights = parameters(graph, sizes);
  host::OpView view;
  view.sizes = sizes;
  whole.gradients.resize(graph.tensors.size());
  for (std::int32_t m = 0; m < microbatches; ++m) {
    std::vector<Values> values = weights;
    for (std::size_t t = 0; t < values.size(); ++t) {
      const TensorId id(static_cast<std::int64_t>(t));
      if (graph[id].kind == TensorKind::kInput) values[t] = input_of(graph, sizes, m, id);
      if (values[t].empty()) values[t].assign(static_cast<std::size_t>(element_count(graph, id, sizes)), 0.0);
    }
    const auto pointers = [&](const std::vector<TensorId>& tensors) {
      std::vector<Values*> found;
      for (const TensorId tensor : tensors) found.push_back(&values[tensor.index()]);
      return found;
    };
    for (const Op& op : graph.ops) {
      if (op.phase == Phase::kOptimizer) continue;
      host::run_op(graph, op, view, pointers(op.inputs), pointers(op.outputs));
      if (op.kind == OpKind::kCrossEntropy) whole.losses.push_back(values[op.outputs[0].index()][0]);
    }
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.kind != TensorKind::kParameterGradient) continue;
      Values& sum = whole.gradients[tensor.gradient_of.index()];
      const Values& part = values[static_cast<std::size_t>(&tensor - graph.tensors.data())];
      sum.resize(part.size(), 0.0);
      for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    }
  }
  return whole;
}

double size_of(const Values& values) {
  double size = 0;
  for (const double x : values) size = std::max(size, std::abs(x));
  return size;
}

// Relative to the largest value, or to `floor`: some gradients (a bias of keys, which softmax ignores) are
// zero.
double worst_error(const Values& found, const Values& wanted, double floor) {
  const double size = std::max(size_of(wanted), floor);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    worst = std::max(worst, std::abs(found[i] - wanted[i]) / size);
  return worst;
}

// Puts every buffer where its role's memory plan has it, so that what shares addresses overwrites each other.
void place_buffers(Program& program) {
  for (std::size_t r = 0; r < program.roles.size(); ++r) {
    const RoleId role(static_cast<std::int64_t>(r));
    const MemoryPlan plan = plan_memory(program, role);
    const auto faults = verify(plan, program, role);
    for (const std::string& fault : faults) UNSCOPED_INFO(fault);
    REQUIRE(faults.empty());
    apply(plan, program.roles[r]);
  }
}

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
  const Whole whole = run_whole(graph, sizes, microbatches);
  const std::vector<Values> weights = parameters(graph, sizes);
  const host::StepResult step =
      host::run_step(graph, program, {weights, [&](std::int32_t microbatch, TensorId tensor) {
                                        return input_of(graph, sizes, microbatch, tensor);
                                      }});
  REQUIRE(step.losses.size() == whole.losses.size());
  CHECK(worst_error(step.losses, whole.losses, 0) < 1e-10);
  double largest = 0;
  for (const Values& gradient : whole.gradients) largest = std::max(largest, size_of(gradient));
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    if (graph.tensors[t].kind != TensorKind::kParameter) continue;
    INFO(graph.tensors[t].name);
    CHECK(worst_error(step.gradients[t], whole.gradients[t], 1e-6 * largest) < 1e-10);
  }
}

// A random plan that fits the model; retried until one does.
struct Drawn {
  PlanShorthand plan;
  std::int32_t gpus = 1;
};

template <class T>
T pick(Random& random, std::initializer_list<T> from) {
  return *(from.begin() + random.between(0, static_cast<std::int64_t>(from.size()) - 1));
}

Drawn draw(Random& random, bool experts) {
  Drawn drawn;
  PlanShorthand& plan = drawn.plan;
  plan.tp = pick(random, {1, 1, 2});
  plan.settings.context_parallel = pick(random, {1, 1, 2, 4});
  plan.settings.context_form = pick(random, {ContextForm::kAllGather, ContextForm::kRing});
  plan.pp = pick(random, {1, 2, 4});
  plan.dp = pick(random, {1, 2, 2});
  if (experts) {
    if (plan.tp > 1) plan.settings.expert_tensor = pick(random, {0, 1});
    plan.settings.expert_parallel =
        plan.dp * plan.settings.context_parallel * plan.tp >= 2 ? pick(random, {1, 2, 4}) : 1;
    plan.settings.expert_capacity_factor = 2;  // Room for every token at one expert: four experts, two picks.
  }
  const auto kinds = all_pipeline_schedules();
  plan.settings.schedule = kinds[static_cast<std::size_t>(random.between(0, std::ssize(kinds) - 1))];
  plan.settings.sequence = 8;
  plan.settings.microbatch_size = pick<std::int64_t>(random, {1, 2});
  std::int64_t microbatches = random.between(1, 9);
  if (plan.settings.schedule == PipelineSchedule::kDualPipe) {  // Few others would be accepted.
    plan.pp = pick(random, {2, 4});
    microbatches = 2 * plan.pp;
  }
  plan.global_batch = plan.settings.microbatch_size * plan.dp * microbatches;
  plan.settings.sequence_parallel = plan.tp > 1 && random.between(0, 1) == 1;
  plan.settings.zero_stage = static_cast<std::int32_t>(random.between(0, 1));
  plan.settings.recompute = pick(random, {Recompute::kNone, Recompute::kFull});
  plan.settings.kernel_set = pick<std::string>(random, {"reference", "orrery-cuda", "megatron"});
  plan.settings.overlap_gradient_reduce = random.between(0, 3) > 0;
  plan.settings.bucket_bytes = pick<std::int64_t>(random, {0, 4096, 1 << 20});
  plan.settings.vocab_multiple = pick<std::int64_t>(random, {1, 8});
  drawn.gpus = plan.tp * plan.settings.context_parallel * plan.pp * plan.dp;
  return drawn;
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

TEST_CASE("random plans compute the loss and gradients of the whole graph", "[executor]") {
  Random random(20260211);
  std::map<std::string, int> of_schedule;
  const std::array<TransformerConfig, 4> models = {test::tiny_llama(), test::tiny_gpt(), test::tiny_moe(),
                                                   test::tiny_latent()};
  int done = 0, refused = 0;
  while (done < 240) {
    const TransformerConfig config = models[static_cast<std::size_t>(done) % models.size()];
    const Drawn drawn = draw(random, config.experts.count > 0);
    const Plan& settings = drawn.plan.settings;
    INFO(fmt::format(
        "plan {}: {} {}, tp {}, cp {} {}, ep {} etp {}, pp {}, dp {}, virtual {}, batch {} of {}, sp {}, "
        "zero {}, {}, {}",
        done, config.name, to_string(settings.schedule), drawn.plan.tp, settings.context_parallel,
        to_string(settings.context_form), settings.expert_parallel, settings.expert_tensor, drawn.plan.pp,
        drawn.plan.dp, drawn.plan.virtual_stages, drawn.plan.global_batch, settings.microbatch_size,
        settings.sequence_parallel, settings.zero_stage, to_string(settings.recompute), settings.kernel_set));
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
    CHECK(of_schedule[std::string(to_string(kind))] >= 4);
  }
}

}  // namespace orrery

// The logits' gradient in the logits' place: in memory plans and peaks, over plans of all kinds, and where it
// can't be.
#include "planner/stage_in_place.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>

#include "base/random.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "planner/memory_plan.hpp"
#include "planner/memory_plan_lifetimes.hpp"
#include "tests/planner/memory_plan_interleaving.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;

constexpr RoleId kFirst(0);

// With logits of 32 MiB the peak is where the loss is.
Program lowered(const PlanShorthand& plan) {
  TransformerConfig config = small_llama();
  config.vocab = 32768;
  const Graph graph = build_training_graph(config, DType::kBf16);
  const Plan expanded = expand(plan, graph, plan.tp * plan.pp * plan.dp * plan.settings.context_parallel);
  Program program = lower(graph, expanded);
  REQUIRE(verify(program) == std::vector<std::string>());
  return program;
}

Program apart(Program program) {
  for (Role& role : program.roles) {
    for (Buffer& buffer : role.buffers) buffer.in_place_of = {};
  }
  return program;
}

std::vector<std::size_t> in_place(const Role& role) {
  std::vector<std::size_t> found;
  for (std::size_t b = 0; b < role.buffers.size(); ++b) {
    if (role.buffers[b].in_place_of.valid()) found.push_back(b);
  }
  return found;
}

std::int64_t live_at(const Role& role, std::int32_t instruction) {
  std::int64_t live = 0;
  for (const MemoryPoint& point : memory_timeline(role)) {
    if (point.instruction > instruction) break;
    live = std::accumulate(point.by_category.begin(), point.by_category.end(), std::int64_t{0});
  }
  return live;
}

}  // namespace

TEST_CASE("the logits' gradient lies where the logits lay", "[planner][in_place]") {
  const Program program = lowered(shorthand(1, 1, 1, 2)), without = apart(program);
  const Role& role = program.roles[0];
  constexpr std::int64_t kTokens = 2 * 256, kLogits = kTokens * 32768 * 2;
  const std::vector<std::size_t> taking = in_place(role);
  REQUIRE(taking.size() == 2);  // One a micro-batch.
  const MemoryPlan plan = plan_memory(program, kFirst);
  CHECK(verify(plan, program, kFirst) == std::vector<std::string>());
  for (const std::size_t b : taking) {
    const Buffer& logits = role.buffers[role.buffers[b].in_place_of.index()];
    CHECK(program.labels[logits.label.index()] == "logits");
    CHECK(logits.bytes == kLogits);
    CHECK(logits.microbatch == role.buffers[b].microbatch);
    CHECK(plan.offsets[b] == plan.offsets[role.buffers[b].in_place_of.index()]);
  }
  // Apart, both are live while the gradient is made. Together, the peak is one launch later, where the
  // gradient of the head's input (512 wide) is there and labels (8 bytes) and log-sum-exps (4) no longer are.
  const PeakMemory before = peak_memory(without.roles[0]), now = peak_memory(role);
  CHECK(live_at(role, before.instruction) == before.bytes - kLogits);
  CHECK(before.bytes - now.bytes == kLogits - kTokens * (512 * 2 - 8 - 4));
  CHECK(now.instruction == before.instruction + 1);
  const MemoryPlan plan_before = plan_memory(without, kFirst);
  CHECK(plan_before.bound_bytes - plan.bound_bytes == before.bytes - now.bytes);
  CHECK(plan.gap() < 0.02);
}

TEST_CASE("every plan has the logits' gradients in place", "[planner][in_place]") {
  struct Case {
    std::string name;
    std::function<void(PlanShorthand&)> change;
  };
  std::vector<Case> cases = {
      {"tp 2", [](PlanShorthand& p) { p.tp = 2; }},
      {"tp 2, sequence parallel, all passes",
       [](PlanShorthand& p) {
         std::string fault;
         p.tp = 2;
         p.settings.sequence_parallel = true;
         p.settings.passes = parse_lowering_passes("all", fault).value();
       }},
      {"cp 2", [](PlanShorthand& p) { p.settings.context_parallel = 2; }},
      {"ZeRO-3",
       [](PlanShorthand& p) {
         p.dp = 2;
         p.settings.zero_stage = 3;
       }},
      {"full recompute", [](PlanShorthand& p) { p.settings.recompute = Recompute::kFull; }},
  };
  for (const PipelineSchedule schedule : all_pipeline_schedules()) {
    cases.push_back({"pp 2, " + std::string(to_string(schedule)), [schedule](PlanShorthand& p) {
                       p.pp = 2;
                       p.settings.schedule = schedule;
                     }});
  }
  for (const Case& one : cases) {
    INFO(one.name);
    PlanShorthand plan = shorthand(1, 1, 1, 4);
    one.change(plan);
    plan.global_batch = 4 * plan.dp * plan.settings.microbatch_size;
    const Program program = lowered(plan);
    std::vector<MemoryPlan> plans;
    std::int64_t taking = 0, gradients = 0;
    for (std::size_t r = 0; r < program.roles.size(); ++r) {
      const RoleId id(static_cast<std::int64_t>(r));
      taking += std::ssize(in_place(program.roles[r]));
      gradients += std::ranges::count(program.roles[r].buffers, "d_logits", [&](const Buffer& buffer) {
        return program.labels[buffer.label.index()];
      });
      plans.push_back(plan_memory(program, id));
      CHECK(verify(plans.back(), program, id) == std::vector<std::string>());
    }
    CHECK(taking == 4);
    CHECK(gradients == 4);
    CHECK(test::Interleaving(program, plans, 7).run() == std::vector<std::string>());
  }
}

TEST_CASE("logits that a loss widens to fp32 keep their place", "[planner][in_place]") {
  PlanShorthand plan = shorthand(1, 1, 1, 2);
  plan.settings.kernel_set = "megatron";
  CHECK(in_place(lowered(plan).roles[0]).empty());
}

TEST_CASE("logits that are needed otherwise keep their place", "[planner][in_place]") {
  // Forward: the loss reads the logits. Backward: its gradient does, and is read.
  Graph graph;
  graph.tensors.resize(2);
  graph.ops.resize(2);
  graph.ops[0].kind = OpKind::kCrossEntropy;
  graph.ops[1].kind = OpKind::kCrossEntropyGrad;
  graph.ops[1].inputs = {TensorId(0)};
  graph.ops[1].outputs = {TensorId(1)};
  const auto launch = [](std::vector<OpId> ops, std::vector<TemplateOperand> operands) {
    TemplateInstruction instruction;
    instruction.ops = std::move(ops);
    instruction.operands = std::move(operands);
    return instruction;
  };
  const TemplateOperand logits{0, false, false}, gradient{1, false, false};
  const TemplateInstruction reader = launch({}, {logits});
  const auto pass = [](StageTemplate& stage, PassKind kind) -> std::vector<TemplateInstruction>& {
    return stage.lists[static_cast<std::size_t>(kind)];
  };
  const auto takes_place = [&](const std::function<void(StageTemplate&)>& change) {
    StageTemplate stage;
    stage.microbatch_buffers.resize(2);
    for (std::size_t b = 0; b < 2; ++b) {
      Buffer& buffer = stage.microbatch_buffers[b];
      buffer.tensor = TensorId(static_cast<std::int64_t>(b));
      buffer.bytes = 64;
    }
    stage.microbatch_buffers[1].category = MemoryCategory::kWorkspace;
    pass(stage, PassKind::kForward) = {launch({OpId(0)}, {logits})};
    pass(stage, PassKind::kBackward) = {launch({OpId(1)}, {logits, {1, false, true}}),
                                        launch({}, {gradient})};
    change(stage);
    put_gradients_in_place(stage, graph);
    const Buffer& made = stage.microbatch_buffers[1];
    CHECK((made.category == MemoryCategory::kActivations) == made.in_place_of.valid());
    return made.in_place_of == BufferId(0);
  };
  CHECK(takes_place([](StageTemplate&) {}));
  CHECK(takes_place([&](StageTemplate& stage) {  // Of a split backward.
    std::swap(pass(stage, PassKind::kBackward), pass(stage, PassKind::kBackwardInput));
  }));
  CHECK_FALSE(takes_place([&](StageTemplate& stage) {
    std::swap(pass(stage, PassKind::kBackward), pass(stage, PassKind::kBackwardInput));
    pass(stage, PassKind::kBackwardWeight).push_back(reader);
  }));
  CHECK_FALSE(takes_place([&](StageTemplate& stage) { pass(stage, PassKind::kBackward).push_back(reader); }));
  CHECK_FALSE(takes_place([&](StageTemplate& stage) {  // Two losses of the same logits.
    auto& list = pass(stage, PassKind::kBackward);
    list.push_back(list.front());
  }));
  CHECK_FALSE(takes_place([&](StageTemplate& stage) {  // Who knows when it has read them?
    auto& list = pass(stage, PassKind::kForward);
    list.push_back(reader);
    list.back().stream = kTensorStream;
  }));
  CHECK_FALSE(takes_place([](StageTemplate& stage) { stage.sent_buffer[0] = 0; }));
  CHECK_FALSE(takes_place([](StageTemplate& stage) { stage.input_buffer = 0; }));
  CHECK_FALSE(takes_place([](StageTemplate& stage) { stage.microbatch_buffers[0].bytes = 128; }));
  CHECK_FALSE(
      takes_place([](StageTemplate& stage) { stage.microbatch_buffers[0].placement = PlacementId(3); }));
  CHECK_FALSE(takes_place(
      [&](StageTemplate& stage) { pass(stage, PassKind::kBackward).front().ops.push_back(OpId(0)); }));
}

}  // namespace orrery

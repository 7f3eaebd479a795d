#include "planner/memory.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/lower.hpp"
#include "tests/planner/shapes.hpp"
#include "topology/cluster.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;

PeakMemory peak(const PlanShorthand& plan, const TransformerConfig& config, std::size_t role = 0) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  return peak_memory(lower(graph, expand(plan, graph, plan.tp * plan.pp * plan.dp)).roles[role]);
}

std::int64_t of(const PeakMemory& memory, MemoryCategory category) {
  return memory.by_category[static_cast<std::size_t>(category)];
}

constexpr std::int64_t kTokens = 2 * 256;

}  // namespace

TEST_CASE("peak memory follows the lifetimes", "[planner][memory]") {
  // w lives all the time; a is read after b is made; c replaces b.
  const Program program = parse_program(R"(
role only (ranks 0):
  buffer w parameters 100B persistent
  buffer a activations 10B
  buffer b activations 20B
  buffer c workspace 5B
  f0 = compute 1us writes a
  f1 = compute 1us reads a writes b
  f2 = compute 1us reads b, w writes c
  f3 = compute 1us reads c
)");
  const PeakMemory memory = peak_memory(program.roles[0]);
  CHECK(memory.bytes == 130);  // During f1: 100 + 10 + 20.
  CHECK(memory.instruction == 1);
  CHECK(of(memory, MemoryCategory::kActivations) == 30);
  CHECK(of(memory, MemoryCategory::kParameters) == 100);
}

TEST_CASE("state takes 18 bytes a parameter, 6 + 12/d with ZeRO-1", "[planner][memory]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  const std::int64_t parameters = parameter_count(graph);
  const auto state = [](const PeakMemory& memory) {
    return of(memory, MemoryCategory::kParameters) + of(memory, MemoryCategory::kGradients) +
           of(memory, MemoryCategory::kOptimizer);
  };
  CHECK(state(peak(shorthand(1, 1, 4, 1), small_llama())) == 18 * parameters);
  PlanShorthand sharded = shorthand(1, 1, 4, 1);
  sharded.settings.zero_stage = 1;
  CHECK(state(peak(sharded, small_llama())) == (6 + 12 / 4) * parameters);
}

// Activations that wait for the backward of one layer, bytes per token (hidden h, a heads, g kv heads, head
// dimension d, ffn f; bf16, fp32 log-sum-exp): both norms' inputs and outputs 8h, q and attention output 4ad,
// k and v 4gd, log-sum-exp 4a, gate, up and their product 6f. Dropout-free, flash attention.
TEST_CASE("a layer keeps its textbook activations", "[planner][memory]") {
  PlanShorthand plan = shorthand(1, 1, 1, 1);
  plan.settings.kernel_set = "reference";
  const std::int64_t grown = of(peak(plan, small_llama(5)), MemoryCategory::kActivations) -
                             of(peak(plan, small_llama(4)), MemoryCategory::kActivations);
  CHECK(grown == kTokens * (8 * 512 + 4 * 8 * 64 + 4 * 4 * 64 + 4 * 8 + 6 * 1536));
}

TEST_CASE("tensor parallelism divides the inner activations, sequence parallelism all", "[planner][memory]") {
  PlanShorthand plan = shorthand(2, 1, 1, 1);
  const auto grown = [&] {
    return of(peak(plan, small_llama(5)), MemoryCategory::kActivations) -
           of(peak(plan, small_llama(4)), MemoryCategory::kActivations);
  };
  const std::int64_t inner = 4 * 8 * 64 + 4 * 4 * 64 + 4 * 8 + 6 * 1536;
  CHECK(grown() == kTokens * (8 * 512 + inner / 2));
  plan.settings.sequence_parallel = true;
  CHECK(grown() == kTokens * (8 * 512 + inner) / 2);
}

TEST_CASE("full recompute keeps each layer's input", "[planner][memory]") {
  PlanShorthand plan = shorthand(2, 1, 1, 1);
  plan.settings.recompute = Recompute::kFull;
  plan.settings.sequence_parallel = true;
  const std::int64_t grown = of(peak(plan, small_llama(5)), MemoryCategory::kActivations) -
                             of(peak(plan, small_llama(4)), MemoryCategory::kActivations);
  CHECK(grown == kTokens * 2 * 512 / 2);
}

TEST_CASE("the first of p stages holds p micro-batches", "[planner][memory]") {
  PlanShorthand plan = shorthand(1, 4, 1, 8);
  plan.settings.kernel_set = "reference";
  const auto activations = [&](std::size_t role) {
    return of(peak(plan, small_llama(8), role), MemoryCategory::kActivations);
  };
  // Stages 1 and 2 differ by one micro-batch in flight: two layers' activations. The output of the second
  // layer isn't one of them: it is sent.
  CHECK(activations(1) - activations(2) ==
        kTokens * 2 * (8 * 512 + 4 * 8 * 64 + 4 * 4 * 64 + 4 * 8 + 6 * 1536));
}

TEST_CASE("what doesn't fit is named with its stage, its excess and what could help", "[planner][memory]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  const Plan plan = expand(shorthand(2, 2, 2, 4), graph, 8);
  const Program program = lower(graph, plan);
  const std::int64_t needed =
      std::max(peak_memory(program.roles[0]).bytes, peak_memory(program.roles[1]).bytes);
  GpuType gpu;
  gpu.name = "small";
  gpu.memory_bytes = needed;
  CHECK(memory_fault(program, plan, gpu).empty());
  gpu.memory_bytes = needed - (1 << 20);
  const std::string fault = memory_fault(program, plan, gpu);
  CHECK_THAT(fault, Catch::Contains("out of memory: small has") && Catch::Contains("1.0 MiB too much"));
  CHECK_THAT(fault, Catch::Contains(
                        "zero: 1, sequence_parallel: true, a smaller microbatch (now 2), recompute: full"));
}

}  // namespace orrery

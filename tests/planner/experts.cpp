// Lowering of what isn't a plain dense layer, on one rank.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "tests/model/transformer_shapes.hpp"

namespace orrery {
namespace {

Program lowered(const TransformerConfig& config, std::int64_t sequence) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  PlanShorthand plan;
  plan.dp = 1;
  plan.global_batch = 2;
  plan.settings.sequence = sequence;
  plan.settings.kernel_set = "reference";
  plan.settings.vocab_multiple = 1;
  const Program program = lower(graph, expand(plan, graph, 1), 1);
  CHECK(verify(program).empty());
  double wanted = 0;
  const Sizes sizes = bind(graph, 1, sequence);
  // Two micro-batches; the optimiser's kernels count bytes alone.
  for (const Op& op : graph.ops) wanted += op.phase == Phase::kOptimizer ? 0 : 2 * flops(graph, op, sizes);
  double found = 0;
  for (const Instruction& instruction : program.roles[0].instructions) {
    if (const auto* compute = std::get_if<Compute>(&instruction.work)) {
      found += program.kernels[compute->kernel.index()].flops;
    }
  }
  CHECK(found == Approx(wanted).epsilon(1e-9));
  return program;
}

const Kernel& kernel(const Program& program, const std::string& label) {
  const auto found = std::find_if(program.kernels.begin(), program.kernels.end(), [&](const Kernel& kernel) {
    return program.labels[kernel.label.index()] == label;
  });
  REQUIRE(found != program.kernels.end());
  return *found;
}

}  // namespace

TEST_CASE("experts lower to one grouped product", "[planner][experts]") {
  TransformerConfig config = test::tiny_experts();
  config.experts.shared_ffn = 5;
  config.experts.balancing_bias = true;
  const Program program = lowered(config, 12);
  // 12 tokens with 2 picks each over 6 experts: 4 rows for each. Gate and up are one product of 7 + 7
  // columns.
  const Kernel& up = kernel(program, "experts_gate_up");
  CHECK(up.kind == KernelKind::kMatmul);
  CHECK(std::vector<std::int64_t>{up.batch, up.m, up.n, up.k} == std::vector<std::int64_t>{6, 4, 14, 12});
  const Kernel& gradient = kernel(program, "experts_down.grad_weight");
  CHECK(std::vector<std::int64_t>{gradient.batch, gradient.m, gradient.n, gradient.k} ==
        std::vector<std::int64_t>{6, 7, 12, 4});
  const Kernel& dispatch = kernel(program, "dispatch");
  CHECK(dispatch.kind == KernelKind::kElementwise);
  CHECK(dispatch.read_bytes == 12 * 12 * 2 + 12 * 2 * 4);
  CHECK(dispatch.written_bytes == 6 * 4 * 12 * 2 + 12 * 2 * 4);
}

TEST_CASE("latent attention's kernel has the mean of both head dimensions", "[planner][experts]") {
  const Program program = lowered(test::tiny_latent(), 12);
  const Kernel& attention = kernel(program, "attention");
  CHECK(std::vector<std::int64_t>{attention.batch, attention.m, attention.n, attention.k} ==
        std::vector<std::int64_t>{4, 12, 12, 5});  // Keys of 7, values of 3.
}

TEST_CASE("within a window a query meets the mean of its keys", "[planner][experts]") {
  TransformerConfig config = test::tiny_llama();
  config.local.window = 3;
  config.local.layers = {true, false};
  const Program program = lowered(config, 12);
  std::vector<std::int64_t> keys;
  for (const Kernel& kernel : program.kernels) {
    if (kernel.kind == KernelKind::kAttention) keys.push_back(kernel.n);
  }
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::int64_t>{3, 12});  // (12 · 3 − 9 / 2) / 12 = 2.6; all 12, causal.
}

}  // namespace orrery

// What each pass does to a plan whose collectives can be counted by hand.
#include <catch2/catch.hpp>

#include <map>
#include <string>

#include "planner/lower.hpp"
#include "planner/plan.hpp"
#include "tests/executor/tiny_models.hpp"

namespace orrery {
namespace {

using Catch::Matchers::Contains;

// Attention and MLP side by side behind one norm, three layers, every dimension divisible by four.
TransformerConfig parallel_blocks() {
  TransformerConfig config = test::tiny_parallel();
  config.layers = 3;
  config.kv_heads = 4;
  config.gated_mlp = false;
  config.ffn = 16;
  return config;
}

Program lowered(const TransformerConfig& config, const std::string& passes, PlanShorthand plan,
                std::vector<PassReport>* reports = nullptr) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  std::string fault;
  plan.settings.sequence = 32;
  plan.settings.passes = parse_lowering_passes(passes, fault).value();
  const Program program = lower(graph, expand(plan, graph, plan.tp * plan.dp), 1, reports);
  CHECK(verify(program).empty());
  return program;
}

PlanShorthand tensor_parallel() {
  PlanShorthand plan;
  plan.tp = 4;
  plan.dp = 1;
  plan.global_batch = 1;
  plan.settings.sequence_parallel = true;
  return plan;
}

// Collectives of the layers, without embedding and head.
std::map<CollectiveKind, int> of_layers(const Program& program, std::int32_t layers) {
  std::map<CollectiveKind, int> count;
  for (const Instruction& instruction : program.roles.front().instructions) {
    const auto* const collective = std::get_if<Collective>(&instruction.work);
    if (collective != nullptr && instruction.layer >= 1 && instruction.layer <= layers)
      ++count[collective->kind];
  }
  return count;
}

const Instruction& named(const Program& program, const std::string& name) {
  for (const Instruction& instruction : program.roles.front().instructions) {
    if (instruction_name(program, instruction) == name) return instruction;
  }
  throw std::runtime_error("no instruction " + name);
}

}  // namespace

// Forward: attention and MLP each gather the norm's output and scatter their sum. Backward: of each of the
// two output products both gradients gather d_output (4), of each of the two input products the weight's
// gradient gathers the norm's output again (2), the input's scatters its sum (2). 8 gathers and 4 scatters a
// layer; merged, one gather of the norm's output forward, one backward, one of d_output, and one scatter each
// way.
TEST_CASE("merging halves the collectives of parallel branches", "[planner][passes]") {
  std::vector<PassReport> reports;
  auto plain = of_layers(lowered(parallel_blocks(), "none", tensor_parallel(), &reports), 3);
  CHECK(plain[CollectiveKind::kAllGather] == 24);
  CHECK(plain[CollectiveKind::kReduceScatter] == 12);
  for (const PassReport& report : reports) CHECK((!report.on && report.changes == 0));
  auto merged = of_layers(lowered(parallel_blocks(), "merge-collectives", tensor_parallel(), &reports), 3);
  CHECK(merged[CollectiveKind::kAllGather] == 9);
  CHECK(merged[CollectiveKind::kReduceScatter] == 6);
  CHECK(reports.front().pass == LoweringPass::kMergeCollectives);
  CHECK(reports.front().changes == 15);  // Gathers; the head has none that are alike.
}

// Where branches follow each other every sum is needed by the norm after it: 4 scatters a layer stay.
TEST_CASE("sums that a norm stands between are reduced one by one", "[planner][passes]") {
  TransformerConfig config = parallel_blocks();
  config.parallel_residual = config.shared_input_norm = false;
  auto merged = of_layers(lowered(config, "merge-collectives", tensor_parallel()), 3);
  CHECK(merged[CollectiveKind::kReduceScatter] == 12);
  CHECK(merged[CollectiveKind::kAllGather] ==
        18);  // Each norm's output twice, d of each output product once.
}

TEST_CASE("asynchronous collectives start one launch early and are waited for by their readers",
          "[planner][passes]") {
  const Program blocking = lowered(parallel_blocks(), "merge-collectives", tensor_parallel());
  const Program early = lowered(parallel_blocks(), "default", tensor_parallel());
  const auto position = [](const Program& program, const std::string& name) {
    return &named(program, name) - program.roles.front().instructions.data();
  };
  // The gather for the weight's gradient stands behind the gradient of the input, or before it.
  CHECK(position(blocking, "norm1.output.gather_again.l2.m0") > position(blocking, "fc1.grad_input.l2.m0"));
  CHECK(position(early, "norm1.output.gather_again.l2.m0") < position(early, "fc1.grad_input.l2.m0"));
  // A blocking gather is waited for by the launch behind it, whatever that reads.
  const auto waits_for = [](const Program& program, const std::string& name, const std::string& other) {
    const Role& role = program.roles.front();
    const Instruction& waiting = named(program, name);
    for (std::int32_t e = waiting.after.begin; e < waiting.after.end; ++e) {
      const Edge& edge = role.edges[static_cast<std::size_t>(e)];
      if (edge.previous_step) continue;
      const Instruction& on = role.instructions[static_cast<std::size_t>(edge.instruction)];
      if (instruction_name(program, on) == other) return true;
    }
    return false;
  };
  CHECK(waits_for(blocking, "fc1.grad_weight.l2.m0", "norm1.output.gather_again.l2.m0"));
  CHECK_FALSE(waits_for(early, "fc1.grad_input.l2.m0", "norm1.output.gather_again.l2.m0"));
  CHECK(waits_for(early, "fc1.grad_weight.l2.m0", "norm1.output.gather_again.l2.m0"));
}

// Five buckets: head, three layers, embedding. Each has its update, which alone its gather waits for.
TEST_CASE("the optimiser runs bucket by bucket", "[planner][passes]") {
  PlanShorthand plan;
  plan.dp = 4;
  plan.global_batch = 4;
  plan.settings.zero_stage = 1;
  std::int64_t whole = 0, parts = 0;
  const Program one = lowered(parallel_blocks(), "default", plan);
  std::vector<PassReport> reports;
  const Program split = lowered(parallel_blocks(), "default,split-optimizer", plan, &reports);
  CHECK(reports.back().pass == LoweringPass::kSplitOptimizer);
  CHECK(reports.back().changes == 4);
  int updates = 0;
  const auto written = [](const Program& program, std::int64_t& bytes, int& count) {
    for (const Instruction& instruction : program.roles.front().instructions) {
      const auto* const compute = std::get_if<Compute>(&instruction.work);
      if (compute == nullptr) continue;
      const Kernel& kernel = program.kernels[compute->kernel.index()];
      if (kernel.kind != KernelKind::kOptimizer) continue;
      bytes += kernel.written_bytes;
      ++count;
    }
  };
  written(one, whole, updates);
  CHECK(updates == 1);
  updates = 0;
  written(split, parts, updates);
  CHECK(updates == 5);
  CHECK(parts == whole);  // 4 divides every bucket.
}

TEST_CASE("lists of passes read back", "[planner][passes]") {
  std::string fault;
  const auto read = [&](const std::string& text) {
    return to_string(parse_lowering_passes(text, fault).value());
  };
  CHECK(read("none") == "none");
  CHECK(read("default") == "merge-collectives,async-collectives");
  CHECK(read("all") == "merge-collectives,split-collectives,async-collectives,split-optimizer");
  CHECK(read("-async-collectives") == "merge-collectives");
  CHECK(read("split-optimizer") == "split-optimizer");
  CHECK(read("all,-merge-collectives") == "split-collectives,async-collectives,split-optimizer");
  CHECK_FALSE(parse_lowering_passes("merge-collective", fault));
  CHECK_THAT(fault, Contains("did you mean") && Contains("merge-collectives") && Contains("none"));
  CHECK_FALSE(parse_lowering_passes("", fault));
}

}  // namespace orrery

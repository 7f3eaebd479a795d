// What expert parallelism sends, against counts worked out by hand, and who exchanges with whom.

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "planner/lower.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

using Groups = std::vector<std::vector<RankId>>;

TransformerConfig experts() {
  TransformerConfig config = test::small_llama();
  config.experts.count = 8;
  config.experts.per_token = 2;
  config.experts.ffn = 256;
  return config;
}

Program lowered(const PlanShorthand& plan) {
  const Graph graph = build_training_graph(experts(), DType::kBf16);
  const std::int32_t gpus = plan.tp * plan.settings.context_parallel * plan.dp;
  Program program = lower(graph, expand(plan, graph, gpus), 1);
  const auto faults = verify(program);
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  REQUIRE(faults.empty());
  return program;
}

// Sizes of the exchanges of layer 2, in their order.
std::vector<std::int64_t> exchanges(const Program& program) {
  std::vector<std::int64_t> bytes;
  for (const Instruction& instruction : program.roles[0].instructions) {
    const auto* collective = std::get_if<Collective>(&instruction.work);
    if (collective == nullptr || instruction.purpose != Purpose::kExpertParallel) continue;
    CHECK(collective->kind == CollectiveKind::kAllToAll);
    if (instruction.layer == 2) bytes.push_back(collective->bytes);
  }
  return bytes;
}

Groups groups(const Program& program, const std::string& axis) {
  for (const Axis& known : program.axes) {
    if (known.name == axis) return known.groups;
  }
  return {};
}

std::vector<RankId> ranks(std::initializer_list<int> numbers) {
  std::vector<RankId> all;
  for (const int number : numbers) all.emplace_back(number);
  return all;
}

}  // namespace

TEST_CASE("a layer of experts exchanges its rows four times", "[planner][experts]") {
  PlanShorthand plan = test::shorthand(1, 1, 4, 1);
  plan.settings.expert_parallel = 4;
  // Dispatch and combine, forward and backward: batch · tokens · picks · hidden · bf16 each, of which a rank
  // keeps a quarter.
  const std::int64_t rows = 2 * 256 * 2 * 512 * 2;
  CHECK(exchanges(lowered(plan)) == std::vector<std::int64_t>(4, rows));
  plan.settings.expert_imbalance = 1.25;  // The busiest rank's rows: 160 for 128 an expert.
  CHECK(exchanges(lowered(plan)) == std::vector<std::int64_t>(4, rows * 5 / 4));
  plan.settings.expert_capacity_factor = 1.5;  // Room for 192, full or not.
  CHECK(exchanges(lowered(plan)) == std::vector<std::int64_t>(4, rows * 3 / 2));
}

TEST_CASE("whole experts exchange tokens among tensor-parallel ranks too", "[planner][experts]") {
  PlanShorthand plan = test::shorthand(2, 1, 4, 1);
  plan.settings.sequence_parallel = true;
  plan.settings.expert_parallel = 4;
  const Program divided = lowered(plan);
  plan.settings.expert_tensor = 1;
  const Program whole = lowered(plan);
  // Of eight ranks, tensor parallel innermost. Divided by tp, an expert's matrices lie on a pair.
  CHECK(groups(divided, "ep") == Groups{ranks({0, 2, 4, 6}), ranks({1, 3, 5, 7})});
  CHECK(groups(whole, "ep") == Groups{ranks({0, 1, 2, 3}), ranks({4, 5, 6, 7})});
  // Gradients of experts are summed over tp · dp / (etp · ep) ranks: none, or two.
  CHECK(groups(divided, "edp").empty());
  CHECK(groups(whole, "edp") == Groups{ranks({0, 4}), ranks({1, 5}), ranks({2, 6}), ranks({3, 7})});
  // Either way a rank exchanges the rows of its half of the tokens; whole experts need no gather of rows.
  const std::int64_t rows = 2 * 128 * 2 * 512 * 2;
  CHECK(exchanges(divided) == std::vector<std::int64_t>(4, rows));
  CHECK(exchanges(whole) == std::vector<std::int64_t>(4, rows));
  const auto gathers = [](const Program& program) {
    return std::count_if(program.roles[0].instructions.begin(), program.roles[0].instructions.end(),
                         [&](const Instruction& instruction) {
                           const std::string& label = program.labels[instruction.label.index()];
                           return instruction.layer == 2 && label.find("rows.gather") != std::string::npos;
                         });
  };
  CHECK(gathers(divided) > 0);
  CHECK(gathers(whole) == 0);
  // Two experts of three matrices, 512 by 256 each; or half of each.
  const auto elements = [](const Program& program) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : program.roles[0].buffers) {
      const bool of_experts = program.labels[buffer.label.index()].find("experts.") != std::string::npos &&
                              program.labels[buffer.label.index()].find("router") == std::string::npos;
      if (of_experts && buffer.layer == 2 && buffer.category == MemoryCategory::kParameters)
        bytes += buffer.bytes;
    }
    return bytes / 2;
  };
  CHECK(elements(divided) == 2 * 3 * 512 * 256 / 2);
  CHECK(elements(whole) == 2 * 3 * 512 * 256);
}

TEST_CASE("what whole experts need is said", "[planner][experts]") {
  const Graph graph = build_training_graph(experts(), DType::kBf16);
  PlanShorthand plan = test::shorthand(4, 1, 2, 1);
  plan.settings.expert_tensor = 1;
  CHECK_THROWS_WITH(expand(plan, graph, 8), Catch::Contains("switch sequence_parallel on"));
  plan.settings.sequence_parallel = true;
  plan.settings.expert_tensor = 3;
  CHECK_THROWS_WITH(expand(plan, graph, 8), Catch::Contains("3 doesn't divide tp 4"));
  plan.settings.expert_tensor = 2;
  plan.settings.expert_parallel = 8;
  CHECK_THROWS_WITH(expand(plan, graph, 8), Catch::Contains("8 doesn't divide dp 2 × cp 1 × tp 4"));
}

}  // namespace orrery

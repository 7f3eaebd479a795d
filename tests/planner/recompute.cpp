// Recompute of single tensors: what is dropped, what runs again, what it saves.
#include "planner/recompute.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "base/error.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"
#include "planner/recompute_choice.hpp"
#include "tests/planner/shapes.hpp"
#include "tests/simulator/machines.hpp"

namespace orrery {
namespace {

using Catch::Matchers::Contains;
using test::shorthand;
using test::small_llama;

constexpr std::int64_t kTokens = 2 * 256;

PlanShorthand recomputing(PlanShorthand plan, std::vector<std::string> names) {
  plan.settings.recompute = Recompute::kTensors;
  plan.settings.recompute_tensors = std::move(names);
  return plan;
}

Program lowered(const PlanShorthand& plan, const TransformerConfig& config = small_llama()) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  const Program program = lower(graph, expand(plan, graph, plan.tp * plan.pp * plan.dp));
  for (const std::string& fault : verify(program)) FAIL(fault);
  return program;
}

// Labels of what is recomputed in a layer, in order, without "recompute.".
std::vector<std::string> again_in(const Program& program, std::int32_t layer) {
  std::vector<std::string> labels;
  for (const Instruction& instruction : program.roles[0].instructions) {
    const std::string& label = program.labels[instruction.label.index()];
    if (instruction.layer == layer && label.starts_with("recompute.")) labels.push_back(label.substr(10));
  }
  return labels;
}

// What one layer more adds to the activations at the peak.
std::int64_t layer_bytes(const PlanShorthand& plan) {
  const auto activations = [&](std::int64_t layers) {
    return peak_memory(lowered(plan, small_llama(layers)).roles[0])
        .by_category[static_cast<std::size_t>(MemoryCategory::kActivations)];
  };
  return activations(5) - activations(4);
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("a dropped tensor's producer runs again in its layer", "[planner][recompute]") {
  const PlanShorthand plan = shorthand(1, 1, 1, 1);
  CHECK(again_in(lowered(recomputing(plan, {"norm1"})), 2) == Labels{"norm1"});
  CHECK(again_in(lowered(recomputing(plan, {"mlp.gated", "core_attention"})), 2) ==
        Labels{"gated", "attention"});
  // norm2 reads the residual, an addition whose second part, the attention's output, nobody keeps either.
  CHECK(again_in(lowered(recomputing(plan, {"norm2", "residual"})), 2) ==
        Labels{"attention_out", "attention_add+norm2"});
  CHECK(again_in(lowered(plan), 2).empty());
}

TEST_CASE("what isn't kept is saved", "[planner][recompute]") {
  const PlanShorthand plan = shorthand(1, 1, 1, 1);
  const std::int64_t whole = layer_bytes(plan);
  const auto saved = [&](std::vector<std::string> names) {
    return whole - layer_bytes(recomputing(plan, std::move(names)));
  };
  // h 512, 8 heads and 4 kv heads of 64, ffn 1536.
  CHECK(saved({"norms"}) == kTokens * 2 * 2 * 512);
  CHECK(saved({"core_attention"}) == kTokens * (2 * 8 * 64 + 4 * 8));
  CHECK(saved({"activation_functions"}) == kTokens * 2 * 1536);
  CHECK(saved({"mlp"}) == kTokens * 6 * 1536);
  CHECK(saved({"mlp.gate"}) == kTokens * 4 * 1536);  // One op makes gate and up.
}

TEST_CASE("recompute repeats the collectives that it needs", "[planner][recompute]") {
  PlanShorthand plan = recomputing(shorthand(2, 1, 1, 1), {"mlp"});
  plan.settings.sequence_parallel = true;
  // norm2's output is kept, divided along the sequence: the projection gathers it as in the forward.
  CHECK(again_in(lowered(plan), 2) == Labels{"norm2.output.gather", "gate_up", "gated"});
  // attention_out's result is a sum over ranks.
  plan.settings.recompute_tensors = {"residual"};
  const Labels labels = again_in(lowered(plan), 2);
  CHECK(std::find(labels.begin(), labels.end(), "attention_out.scatter") != labels.end());
}

TEST_CASE("only the first layers of each stage recompute", "[planner][recompute]") {
  PlanShorthand plan = recomputing(shorthand(1, 2, 1, 2), {"norms"});
  plan.settings.recompute_layers = 1;
  const Program program = lowered(plan);
  std::map<std::int32_t, int> computes;
  for (const Role& role : program.roles) {
    for (const Instruction& instruction : role.instructions) {
      if (instruction.purpose == Purpose::kRecompute) ++computes[instruction.layer];
    }
  }
  // Layers 1 and 2, 3 and 4; two norms, two micro-batches.
  CHECK(computes == std::map<std::int32_t, int>{{1, 4}, {3, 4}});
  plan.settings.recompute = Recompute::kFull;
  computes.clear();
  const Program full = lowered(plan);
  for (const Instruction& instruction : full.roles[1].instructions) {
    if (instruction.purpose == Purpose::kRecompute) ++computes[instruction.layer];
  }
  CHECK(computes.size() == 1);
  CHECK(computes.contains(3));
}

TEST_CASE("names that say nothing are named with near ones", "[planner][recompute]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  Plan plan = recomputing(shorthand(1, 1, 1, 1), {"mlp.gatde", "output"}).settings;
  const std::vector<std::string> faults = recompute_faults(plan, graph);
  REQUIRE(faults.size() == 2);
  CHECK_THAT(faults[0], Contains("\"mlp.gatde\"") && Contains("did you mean") && Contains("core_attention"));
  CHECK_THAT(faults[1], Contains("\"output\""));  // The next layer reads it: recompute begins from it.
  plan.recompute_tensors = {"attention.output", "norm1"};
  CHECK(recompute_faults(plan, graph).empty());
  REQUIRE(recompute_warnings(plan, graph).size() == 1);
  CHECK_THAT(recompute_warnings(plan, graph)[0], Contains("attention.output saves nothing"));
}

TEST_CASE("auto takes the cheapest set that fits", "[planner][recompute]") {
  const Graph graph = build_training_graph(small_llama(8), DType::kBf16);
  const Cluster cluster = testing::cluster_of("dgx-h100", 1);
  const Profile profile = default_profile(cluster.node.gpu);
  PlanShorthand plan = shorthand(1, 1, 1, 1);
  plan.settings.recompute = Recompute::kAuto;
  const auto choose = [&](std::int64_t bytes) {
    plan.settings.recompute_memory = bytes;
    return choose_recompute(expand(plan, graph, 1), graph, cluster, profile);
  };
  const RecomputeChoice all = choose(std::int64_t{1} << 40);
  CHECK(all.plan.recompute == Recompute::kNone);

  // The less is allowed the more is recomputed, and it always fits.
  double seconds = 0;
  std::int64_t before = all.bytes_before;
  for (std::int64_t bytes = all.bytes_before - 1; bytes > 0; bytes = before - (before >> 6)) {
    try {
      const RecomputeChoice choice = choose(bytes);
      CHECK(choice.bytes_after <= bytes);
      CHECK(peak_memory(lower(graph, choice.plan).roles[0]).bytes == choice.bytes_after);
      CHECK(choice.recompute_s >= seconds);
      seconds = choice.recompute_s;
      before = choice.bytes_after;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInfeasible);
      CHECK_THAT(error.what(), Contains("plan.recompute: auto"));
      break;
    }
  }
  CHECK(seconds > 0);
  // A little over: the outputs of norms and activation functions cost least for what they save, not a
  // product.
  const RecomputeChoice little = choose(all.bytes_before - 1);
  for (const std::string& name : little.plan.recompute_tensors) {
    INFO(name);
    CHECK(name != "qkv");
    CHECK(name != "gate_up");
  }
}

}  // namespace orrery

#include "planner/lower.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "planner/memory.hpp"
#include "tests/planner/shapes.hpp"

namespace orrery {
namespace {

using test::shorthand;
using test::small_llama;

struct Count {
  std::int64_t operations = 0, bytes = 0;
};

// Collectives of one role by purpose and kind, of one block and micro-batch (−1: any).
std::map<CollectiveKind, Count> collectives(const Role& role, Purpose purpose, std::int32_t layer = -1,
                                            std::int32_t microbatch = -1) {
  std::map<CollectiveKind, Count> result;
  for (const Instruction& instruction : role.instructions) {
    const auto* const collective = std::get_if<Collective>(&instruction.work);
    if (collective == nullptr || instruction.purpose != purpose) continue;
    if ((layer >= 0 && instruction.layer != layer) ||
        (microbatch >= 0 && instruction.microbatch != microbatch))
      continue;
    result[collective->kind].operations += 1;
    result[collective->kind].bytes += collective->bytes;
  }
  return result;
}

double total_flops(const Program& program, const Role& role) {
  double sum = 0;
  for (const Instruction& instruction : role.instructions) {
    if (const auto* const compute = std::get_if<Compute>(&instruction.work)) {
      sum += program.kernels[compute->kernel.index()].flops;
    }
  }
  return sum;
}

Program lowered(const PlanShorthand& plan, const TransformerConfig& config = small_llama(), int threads = 1) {
  const Graph graph = build_training_graph(config, DType::kBf16);
  Program program = lower(graph, expand(plan, graph, plan.tp * plan.pp * plan.dp), threads);
  const auto faults = verify(program);
  for (const std::string& fault : faults) UNSCOPED_INFO(fault);
  REQUIRE(faults.empty());
  return program;
}

}  // namespace

TEST_CASE("one rank computes and says nothing to anybody", "[planner][lower]") {
  const Program program = lowered(shorthand(1, 1, 1, 3));
  REQUIRE(program.roles.size() == 1);
  for (const Instruction& instruction : program.roles[0].instructions) {
    CHECK(std::holds_alternative<Compute>(instruction.work));
  }
}

TEST_CASE("a lowered step does the arithmetic of its graph", "[planner][lower]") {
  const TransformerConfig config = small_llama();
  const Graph graph = build_training_graph(config, DType::kBf16);
  // tokens · (3 products · 2 flops · matmul weights) + attention, causal half: forward 2·2·s²·d/2 per head,
  // backward 2.5 times that; everything else is memory-bound.
  const double tokens = 2 * 256;
  const double weights = 4.0 * (512 * 64 * (8 + 4 + 4) + 8 * 64 * 512 + 3 * 512 * 1536) + 512 * 2048;
  const double attention = 4 * 2 * 8 * (2.0 * 2 * 256 * 256 * 64 / 2);
  const double matmuls = 6 * weights * tokens + 3.5 * attention;
  double elementwise = 0;
  const Sizes sizes = bind(graph, 2, 256);
  for (const Op& op : graph.ops) {
    const bool counted = op.kind == OpKind::kMatmul || op.kind == OpKind::kMatmulGradInput ||
                         op.kind == OpKind::kMatmulGradWeight || op.kind == OpKind::kAttention ||
                         op.kind == OpKind::kAttentionGrad || op.phase == Phase::kOptimizer;
    if (!counted) elementwise += flops(graph, op, sizes);
  }
  const Program one = lowered(shorthand(1, 1, 1, 2));
  CHECK(total_flops(one, one.roles[0]) == Approx(2 * (matmuls + elementwise)).epsilon(1e-12));
  CHECK(elementwise < 0.05 * matmuls);
}

TEST_CASE("tensor parallelism divides the arithmetic", "[planner][lower]") {
  const Program one = lowered(shorthand(1, 1, 1, 1));
  PlanShorthand plan = shorthand(4, 1, 1, 1);
  plan.settings.sequence_parallel = true;
  const Program four = lowered(plan);
  CHECK(4 * total_flops(four, four.roles[0]) == Approx(total_flops(one, one.roles[0])).epsilon(1e-3));
}

TEST_CASE("tensor parallelism costs four all-reduces a layer", "[planner][lower]") {
  const Program program = lowered(shorthand(2, 1, 1, 2));
  const std::int64_t activation = 2 * 256 * 512 * 2;  // batch · sequence · hidden · bf16
  const auto layer = collectives(program.roles[0], Purpose::kTensorParallel, 2, 1);
  CHECK(layer.at(CollectiveKind::kAllReduce).operations ==
        4);  // After attention and MLP, and before both, backward.
  CHECK(layer.at(CollectiveKind::kAllReduce).bytes == 4 * activation);
  // The embedding's sum.
  CHECK(collectives(program.roles[0], Purpose::kTensorParallel, 0, 0).at(CollectiveKind::kAllReduce).bytes ==
        activation);
  // The head: the gradient of its input, and for the loss of each token its maximum, then two sums, in fp32.
  const auto head = collectives(program.roles[0], Purpose::kTensorParallel, 5, 0);
  CHECK(head.at(CollectiveKind::kAllReduce).operations == 3);
  CHECK(head.at(CollectiveKind::kAllReduce).bytes == activation + 3 * 2 * 256 * 4);
}

TEST_CASE("sequence parallelism turns them into gathers and scatters of the same size", "[planner][lower]") {
  PlanShorthand plan = shorthand(2, 1, 1, 2);
  plan.settings.sequence_parallel = true;
  const Program program = lowered(plan);
  const std::int64_t activation = 2 * 256 * 512 * 2;
  const auto layer = collectives(program.roles[0], Purpose::kSequenceParallel, 2, 1);
  // Forward: before the column-parallel products. Backward: the gradients before the row-parallel ones, and
  // the two inputs again for the weight gradients.
  CHECK(layer.at(CollectiveKind::kAllGather).operations == 6);
  CHECK(layer.at(CollectiveKind::kReduceScatter).operations == 4);
  CHECK(layer.at(CollectiveKind::kAllGather).bytes == 6 * activation);
  CHECK(collectives(program.roles[0], Purpose::kTensorParallel, 2, 1).empty());
  // Norm weights see a part of the sequence: their gradients are summed once a step. 9 norms of 512.
  const auto extra = collectives(program.roles[0], Purpose::kGradientReduce);
  CHECK(extra.at(CollectiveKind::kAllReduce).bytes == 9 * 512 * 4 + 4);  // And the scalar of the norm.
}

TEST_CASE("data parallelism sums every gradient once a step", "[planner][lower]") {
  const TransformerConfig config = small_llama();
  const Graph graph = build_training_graph(config, DType::kBf16);
  const std::int64_t parameters = parameter_count(graph);
  PlanShorthand plan = shorthand(1, 1, 4, 2);
  plan.settings.clip_gradients = false;
  const Program all_reduce = lowered(plan);
  const auto reduced = collectives(all_reduce.roles[0], Purpose::kGradientReduce);
  CHECK(reduced.at(CollectiveKind::kAllReduce).operations == 6);  // A bucket a block.
  CHECK(reduced.at(CollectiveKind::kAllReduce).bytes == 4 * parameters);

  plan.settings.zero_stage = 1;
  const Program sharded = lowered(plan);
  CHECK(collectives(sharded.roles[0], Purpose::kGradientReduce).at(CollectiveKind::kReduceScatter).bytes ==
        4 * parameters);
  CHECK(collectives(sharded.roles[0], Purpose::kParameterGather).at(CollectiveKind::kAllGather).bytes ==
        2 * parameters);

  plan.settings.bucket_bytes = 1 << 30;
  CHECK(collectives(lowered(plan).roles[0], Purpose::kGradientReduce)
            .at(CollectiveKind::kReduceScatter)
            .operations == 1);
}

TEST_CASE("neighbouring stages send one activation a micro-batch each way", "[planner][lower]") {
  PlanShorthand plan = shorthand(2, 2, 1, 3);
  plan.settings.sequence_parallel = true;
  const Program program = lowered(plan);
  REQUIRE(program.roles.size() == 2);
  std::int64_t sends = 0, receives = 0;
  for (const Instruction& instruction : program.roles[0].instructions) {
    if (const auto* const send = std::get_if<Send>(&instruction.work)) {
      ++sends;
      CHECK(send->bytes == 2 * 256 * 512 * 2 / 2);  // Scattered over the tensor-parallel pair.
    }
    receives += std::holds_alternative<Recv>(instruction.work) ? 1 : 0;
  }
  CHECK(sends == 3);
  CHECK(receives == 3);
}

TEST_CASE("replicas share roles", "[planner][lower]") {
  const Program program = lowered(shorthand(2, 2, 4, 2));
  CHECK(program.roles.size() == 2);
  CHECK(program.world_size() == 16);
}

TEST_CASE("replicas of different depth lower to matching collectives", "[planner][lower]") {
  const Graph graph = build_training_graph(small_llama(), DType::kBf16);
  Plan plan;
  plan.sequence = 256;
  plan.replicas.resize(2);
  plan.replicas[0] = {{{0, 3, {RankId(0)}}, {3, 6, {RankId(1)}}}, 3};
  plan.replicas[1] = {{{0, 2, {RankId(2)}}, {2, 4, {RankId(3)}}, {4, 6, {RankId(4)}}}, 2};
  plan.idle = {RankId(5)};
  for (const std::int32_t zero : {0, 1}) {
    plan.zero_stage = zero;
    REQUIRE(check(plan, graph).empty());
    const Program program = lower(graph, plan);
    CHECK(verify(program).empty());
    CHECK(program.roles.size() == 5);
    CHECK_FALSE(program.role_of[5].valid());
  }
}

TEST_CASE("a tied table is summed between the pipeline's ends", "[planner][lower]") {
  TransformerConfig config = small_llama();
  config.tied_head = true;
  const Program program = lowered(shorthand(1, 4, 1, 4), config);
  for (const std::size_t stage : {0u, 3u}) {
    const auto found = collectives(program.roles[stage], Purpose::kGradientReduce);
    CHECK(found.at(CollectiveKind::kAllReduce).bytes == 2048 * 512 * 4 + 4);
  }
  CHECK(collectives(program.roles[1], Purpose::kGradientReduce).at(CollectiveKind::kAllReduce).bytes == 4);
}

TEST_CASE("full recompute repeats each layer's forward and nothing else", "[planner][lower]") {
  PlanShorthand plan = shorthand(2, 1, 1, 1);
  plan.settings.recompute = Recompute::kFull;
  plan.settings.kernel_set = "reference";
  const Program program = lowered(plan);
  std::map<Purpose, std::int64_t> computes;
  for (const Instruction& instruction : program.roles[0].instructions) {
    if (std::holds_alternative<Compute>(instruction.work)) computes[instruction.purpose] += 1;
  }
  // norm, qkv, rope, attention, out, add, norm, gate_up, gated, down, add.
  CHECK(computes[Purpose::kRecompute] == 4 * 11);
  // Embedding; final norm, head, and the loss over a divided vocabulary in three.
  CHECK(computes[Purpose::kForward] == 4 * 11 + 1 + 2 + 3);
}

TEST_CASE("lowering doesn't depend on the number of threads", "[planner][lower]") {
  const PlanShorthand plan = shorthand(2, 4, 2, 8);
  CHECK(to_text(lowered(plan, small_llama(), 1)) == to_text(lowered(plan, small_llama(), 3)));
}

TEST_CASE("a lowered program reads back from its text", "[planner][lower]") {
  PlanShorthand plan = shorthand(2, 2, 2, 2);
  plan.settings.sequence_parallel = true;
  plan.settings.zero_stage = 1;
  const std::string text = to_text(lowered(plan));
  CHECK(to_text(parse_program(text)) == text);
}

TEST_CASE("random plans lower to sound programs", "[planner][lower][properties]") {
  int lowered_plans = 0;
  for (const std::int32_t tp : {1, 2, 4}) {
    for (const std::int32_t pp : {1, 2, 4}) {
      for (const std::int32_t dp : {1, 2}) {
        for (int variant = 0; variant < 16; ++variant) {
          PlanShorthand plan = shorthand(tp, pp, dp, 3);
          plan.settings.sequence_parallel = (variant & 1) != 0;
          plan.settings.zero_stage = (variant & 2) != 0 ? 1 : 0;
          plan.settings.recompute = (variant & 4) != 0 ? Recompute::kFull : Recompute::kNone;
          plan.settings.overlap_gradient_reduce = plan.settings.overlap_parameter_gather = (variant & 8) != 0;
          TransformerConfig config = small_llama();
          if (variant % 3 == 1) config.qk_norm = config.qkv_bias = true;
          if (variant % 3 == 2) {
            config.positions = PositionKind::kLearned;
            config.norm = NormKind::kLayer;
            config.gated_mlp = false;
            config.tied_head = config.mlp_bias = config.attention_out_bias = true;
            config.residual_dropout = config.embedding_dropout = 0.1;
          }
          lowered(plan, config);
          ++lowered_plans;
        }
      }
    }
  }
  CHECK(lowered_plans == 288);
}

}  // namespace orrery

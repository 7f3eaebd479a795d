// Peaks that Megatron-LM measured against the Program's memory. The figures are the golden values
// (mem-max-allocated-bytes of the last rank, H100) of NVIDIA/Megatron-LM,
// tests/functional_tests/test_cases/gpt/gpt3_7b_tp4_pp1_memory_speed and gpt3_7b_tp1_pp4_memory_speed.
//
// Counted: weights (bf16), fp32 main gradients, Adam's state divided over two ranks; what layers keep with
// FlashAttention, one-byte dropout masks, 16-bit and fp32 logits, received activations. Not counted: what
// lies outside of PyTorch's allocator, cuBLAS's and NCCL's workspaces, padding of the gradient buffer.
#include <catch2/catch.hpp>

#include "model/transformer.hpp"
#include "planner/lower.hpp"
#include "planner/memory.hpp"

namespace orrery {
namespace {

TransformerConfig gpt3_7b() {
  TransformerConfig config;
  config.name = "gpt3-7b";
  config.hidden = 4096;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.ffn = 16384;
  config.vocab = 131073;
  config.max_positions = 8192;
  config.norm = NormKind::kLayer;
  config.positions = PositionKind::kLearned;
  config.gated_mlp = false;
  config.activation = Activation::kGelu;
  config.qkv_bias = config.attention_out_bias = config.mlp_bias = true;
  config.residual_dropout = config.embedding_dropout = 0.1;
  return config;
}

PlanShorthand on_eight_gpus(std::int32_t tp, std::int32_t pp, std::int64_t microbatch) {
  PlanShorthand plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dp = 2;
  plan.global_batch = 8;
  plan.settings.sequence = 8192;
  plan.settings.microbatch_size = microbatch;
  plan.settings.zero_stage = 1;
  plan.settings.kernel_set = "megatron";
  return plan;
}

PeakMemory peak_of_last(const PlanShorthand& plan) {
  const Graph graph = build_training_graph(gpt3_7b(), DType::kBf16);
  return peak_memory(lower(graph, expand(plan, graph, 8)).roles.back());
}

}  // namespace

TEST_CASE("Megatron-LM's peak with tensor parallelism", "[planner][memory][megatron]") {
  // By hand: 7.0e9 / 4 parameters of 12 bytes are 20.6e9. Of a layer 16,384 tokens keep 10 · 4096 bytes whole
  // and (2 · 4096 + 4 · 1024 + 2 · 4096 + 128 + 4 · 16384) / 4 divided: 1.024e9, 32 times 32.8e9. Logits:
  // 16,384 · 32,896 · 6 = 3.2e9.
  const PeakMemory peak = peak_of_last(on_eight_gpus(4, 1, 2));
  CHECK(static_cast<double>(peak.bytes) == Approx(57.14e9).epsilon(0.03));
}

TEST_CASE("Megatron-LM's peak with interleaved pipeline stages", "[planner][memory][megatron]") {
  // Four ranks with eight stages of one layer each: the last one has 29 layers in flight when its first loss
  // comes, 30.2e9, logits of 6.5e9 and 1.95e9 parameters.
  PlanShorthand plan = on_eight_gpus(1, 4, 1);
  plan.virtual_stages = 8;
  plan.settings.schedule = PipelineSchedule::kInterleaved;
  const PeakMemory peak = peak_of_last(plan);
  CHECK(static_cast<double>(peak.bytes) == Approx(60.72e9).epsilon(0.03));
}

}  // namespace orrery

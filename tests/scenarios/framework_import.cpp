// Small settings files of each framework, written for these tests.

#include <catch2/catch.hpp>

#include "scenarios/scenario.hpp"
#include "tests/scenarios/framework_texts.hpp"
#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

const std::string kScript = R"(#!/bin/bash
# 16 GPUs.
GPUS=8
NODES=2
MODEL=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8
  --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear
  --untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 8192 --max-position-embeddings 8192
  --hidden-dropout 0 --attention-dropout 0)
torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py ${MODEL[@]} \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 \
  --micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce \
  --sequence-parallel --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --lr 1e-4 --tp-comm-overlap --my-own-flag 3
)";

}  // namespace

TEST_CASE("a Megatron-LM script becomes a plan", "[frameworks]") {
  const ImportedPlan plan = import_plan(kScript, "run.sh");
  CHECK(plan.framework == "Megatron-LM");
  // 32 layers over 4 positions in stages of 4: 2 virtual stages. 16 GPUs / (2 · 4) = 2.
  CHECK(values_of(plan, "plan.") ==
        "tp 2, pp 4, microbatch 1, dp 2, schedule interleaved, virtual_stages 2, sequence_parallel true, "
        "zero 1, "
        "recompute full, precision bf16, gradient_type fp32, overlap.gradient_reduce true, "
        "overlap.parameter_gather false, kernel_set megatron");
  CHECK(
      values_of(plan, "model.") ==
      "hidden 4096, layers 32, heads 32, kv_heads 8, ffn 14336, vocab 128256, max_positions 8192, norm rms, "
      "positions rope, gated_mlp true, activation silu, tied_head false");
  CHECK(value_of(plan, "sequence") == "8192");
  CHECK(value_of(plan, "global_batch") == "128");
  CHECK(plan.find("plan.tp")->source == "--tensor-model-parallel-size");
  CHECK(plan.missing == std::vector<std::string>{"cluster: which machines (--node and --nodes)"});
  CHECK_THAT(joined(plan.left_out),
             Contains("--tp-comm-overlap: tensor-parallel communication isn't overlapped"));
  CHECK(plan.unknown == std::vector<std::string>{"--my-own-flag 3"});
  CHECK_THAT(joined(plan.no_effect), Contains("--lr\n"));
}

TEST_CASE("an imported plan is a scenario", "[frameworks]") {
  FrameworkImportOptions options;
  options.cluster = "{node: dgx-h100, nodes: 2}";
  const std::string text =
      scenario_text(import_plan(kScript, "folder/my run.sh", options), "folder/my run.sh");
  CHECK_THAT(text, Contains("# From my run.sh (Megatron-LM), by orrery plan import.\nname: \"my-run\"\n"));
  CHECK_THAT(text, Contains("  tp: 2                             # --tensor-model-parallel-size\n"));
  CHECK_THAT(text, Contains("  overlap:\n    gradient_reduce: true"));
  const Scenario scenario = parse_scenario(text, "out.yaml");
  CHECK(scenario.plan.pp == 4);
  CHECK(scenario.plan.virtual_stages == 2);
  CHECK(scenario.plan.settings.recompute == Recompute::kFull);
  CHECK_FALSE(scenario.plan.settings.overlap_parameter_gather);
  CHECK(scenario.model.kv_heads == 8);
  CHECK(scenario.cluster.gpu_count() == 16);
}

TEST_CASE("the number of GPUs gives dp", "[frameworks]") {
  FrameworkImportOptions options;
  options.gpus = 64;
  CHECK(value_of(import_plan(kScript, "run.sh", options), "plan.dp") == "8");
  options.gpus = 20;
  CHECK_THAT(import_message(kScript, "run.sh", options),
             Contains("--gpus 20: tp 2 × pp 4 = 8 doesn't divide it"));
}

TEST_CASE("Megatron-LM's stages", "[frameworks]") {
  const auto stages = [](const std::string& arguments) {
    return values_of(
        import_plan(
            "run --micro-batch-size 1 --num-layers 14 --pipeline-model-parallel-size 4 " + arguments + "\n",
            "run.sh"),
        "plan.");
  };
  CHECK_THAT(stages("--pipeline-model-parallel-layout 'Et*2|(tt|)*5t|tmL'"),
             Contains("layout \"Et*2|(tt|)*5t|tmL\", schedule interleaved, virtual_stages 2"));
  CHECK_THAT(stages("--decoder-first-pipeline-num-layers 2"),
             Contains("layers_per_stage [2, 4, 4, 4], schedule 1f1b"));
  CHECK_THAT(stages("--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 3"),
             Contains("layers_per_stage [3, 4, 4, 3]"));
  CHECK_THAT(stages("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"),
             Contains("layers_per_stage [3, 4, 4, 3]"));
  CHECK_THAT(import_message("run --micro-batch-size 1 --pipeline-model-parallel-size 4 "
                            "--pipeline-model-parallel-layout Ett|t\n",
                            "run.sh"),
             Contains("run.sh:1: --pipeline-model-parallel-layout: is \"Ett\""));
}

TEST_CASE("types of gradients", "[frameworks]") {
  const auto type = [](const std::string& arguments) {
    const ImportedPlan plan = import_plan("run --micro-batch-size 1 " + arguments + "\n", "run.sh");
    return value_of(plan, "plan.precision") + " " + value_of(plan, "plan.gradient_type");
  };
  CHECK(type("--bf16") == "bf16 fp32");
  CHECK(type("--bf16 --grad-reduce-in-bf16") == "bf16 bf16");
  CHECK(type("--fp16") == "fp16 fp16");
  CHECK(type("--fp16 --accumulate-allreduce-grads-in-fp32") == "fp16 fp32");
  CHECK(type("") == "fp32 fp32");
}

TEST_CASE("what is recomputed, and how keys and values travel", "[frameworks]") {
  const auto value = [](const std::string& key, const std::string& arguments) {
    return value_of(import_plan("run --micro-batch-size 1 " + arguments + "\n", "run.sh"), key);
  };
  CHECK(value("plan.recompute", "--recompute-activations") == "selective");
  CHECK(value("plan.recompute", "--recompute-granularity selective") == "selective");
  CHECK(value("plan.fp8", "--fp8-format hybrid") == "tensor");
  CHECK(value("plan.fp8_format", "--fp8-format hybrid --fp8-recipe tensorwise") == "hybrid");
  CHECK(value("plan.fp8", "--fp8-format e4m3 --fp8-recipe blockwise") == "block");
  CHECK(value("plan.fp8", "--fp8-format e4m3 --fp8-recipe mxfp8") == "");
  CHECK(value("plan.fp8_format", "--fp8-hybrid") == "hybrid");
  const auto left_out = [](const std::string& arguments) {
    return joined(import_plan("run --micro-batch-size 1 " + arguments + "\n", "run.sh").left_out);
  };
  CHECK_THAT(left_out("--fp8-format hybrid"),
             Contains("--fp8-format: scales follow from each matrix itself"));
  CHECK_THAT(left_out("--fp8-format hybrid --fp8-recipe blockwise"),
             Contains("--fp8-format: gradients by blocks are E4M3"));
  CHECK_THAT(left_out("--fp8-format e4m3 --fp8-recipe mxfp8"),
             Contains("--fp8-recipe mxfp8: products run in"));
  CHECK(value("plan.recompute",
              "--recompute-granularity selective --recompute-modules mla_up_proj mlp layernorm") ==
        "[latents, mlp, norms]");
  CHECK(value("plan.recompute",
              "--recompute-granularity full --recompute-method block --recompute-num-layers 3") ==
        "{what: full, layers: 3}");
  CHECK(value("plan.recompute", "").empty());
  CHECK(value("plan.context_parallel_form", "--context-parallel-size 2") == "ring");
  CHECK(value("plan.context_parallel_form", "--context-parallel-size 2 --cp-comm-type all_gather") ==
        "all_gather");
  CHECK(value("plan.context_parallel_form", "--cp-comm-type p2p").empty());
}

TEST_CASE("layers with experts", "[frameworks]") {
  const auto model = [](const std::string& arguments) {
    return values_of(
        import_plan("run --micro-batch-size 1 --num-layers 6 --hidden-size 64 --num-attention-heads 4 "
                    "--num-experts 8 --ffn-hidden-size 256 " +
                        arguments + "\n",
                    "run.sh"),
        "model.experts.");
  };
  CHECK(model("") == "count 8, per_token 2, ffn 256");
  CHECK(model("--moe-layer-freq '([0]*2+[1]*4)' --moe-ffn-hidden-size 32 --moe-router-topk 3") ==
        "count 8, per_token 3, ffn 32, dense_layers 2");
  CHECK(model("--moe-layer-freq 2") == "count 8, per_token 2, ffn 256, every 2");
}

TEST_CASE("a model that can't be said is left out", "[frameworks]") {
  const ImportedPlan plan = import_plan(
      "run --micro-batch-size 1 --num-layers 6 --hidden-size 64 --num-attention-heads 4 "
      "--position-embedding-type alibi\n",
      "run.sh");
  CHECK(values_of(plan, "model").empty());
  CHECK_THAT(joined(plan.missing), Contains("model: alibi positions (--position-embedding-type)"));
}

TEST_CASE("values that a script leaves open are asked for, all at once", "[frameworks]") {
  const std::string script = "run --tensor-model-parallel-size $TP --micro-batch-size ${MBS} --save $OUT\n";
  const std::string message = import_message(script, "run.sh");
  CHECK_THAT(message, Contains("run.sh: leaves values open: TP (--tensor-model-parallel-size, line 1), MBS"));
  CHECK_THAT(message, Contains("--var TP=… --var MBS=…") && !Contains("OUT"));
  FrameworkImportOptions options;
  options.variables = {{"TP", "4"}, {"MBS", "2"}};
  CHECK(value_of(import_plan(script, "run.sh", options), "plan.microbatch") == "2");
}

TEST_CASE("scripts without, or with several runs", "[frameworks]") {
  CHECK_THAT(import_message("export TP=4\n./pretrain.sh\n", "run.sh"),
             Contains("no command has Megatron-LM's arguments") && Contains("(./pretrain.sh)"));
  const std::string two = "run --micro-batch-size 1\nrun --micro-batch-size 2\nrun --micro-batch-size 1\n";
  CHECK_THAT(import_message(two, "run.sh"), Contains("has 2 different runs of Megatron-LM (line 1, 2)"));
  FrameworkImportOptions options;
  options.run = 2;
  CHECK(value_of(import_plan(two, "run.sh", options), "plan.microbatch") == "2");
  // A file that only sets variables for another one, and a command in quotes.
  CHECK(value_of(import_plan("export ARGS=\" --micro-batch-size 4 --bf16 \"\n", "run.sh"),
                 "plan.microbatch") == "4");
  CHECK(value_of(import_plan("A=\"--micro-batch-size 4\"\nsrun bash -c \"python x.py $A\"\n", "run.sh"),
                 "plan.microbatch") == "4");
}

TEST_CASE("wrong values are errors with their place", "[frameworks]") {
  CHECK(import_message("run --micro-batch-size four\n", "run.sh") ==
        "run.sh:1: --micro-batch-size: is \"four\"; expected a whole number from 1 to 1,000,000");
  CHECK_THAT(import_message("MODEL_ARGS:\n  --micro-batch-size: 0\n", "a.yaml"),
             Contains("a.yaml:2: --micro-batch-size"));
  CHECK_THAT(import_message("[training]\nseq_len = \n", "a.toml"), Contains("a.toml:2: not valid TOML"));
  CHECK_THAT(import_message("{\"train_batch_size\": }", "a.json"), Contains("a.json: not valid JSON"));
  CHECK_THAT(import_message("{\"a\": 1}", "a.json"), Contains("has no settings of DeepSpeed"));
  CHECK_THAT(import_message("a: 1\n", "a.yaml"), Contains("has no settings of Megatron-LM, NeMo"));
  CHECK_THAT(import_message("base_model: x\nmicro_batch_size: 1\n", "a.yml"),
             Contains("looks like settings of Axolotl"));
  FrameworkImportOptions options;
  options.format = "torchtitn";
  CHECK_THAT(import_message("", "a", options), Contains("did you mean \"torchtitan\"?"));
}

TEST_CASE("arguments as YAML", "[frameworks]") {
  const std::string text = R"(ENV_VARS:
  NCCL_NVLS_ENABLE: 0
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --micro-batch-size: 1
  --sequence-parallel: true
  --overlap-grad-reduce: false
  --bf16: true
)";
  FrameworkImportOptions options;
  options.variables = {{"TP", "4"}};
  const ImportedPlan plan = import_plan(text, "model_config.yaml", options);
  CHECK(value_of(plan, "plan.tp") == "4");
  CHECK(value_of(plan, "plan.sequence_parallel") == "true");
  CHECK(value_of(plan, "plan.overlap.gradient_reduce") == "false");
  CHECK(value_of(plan, "profile.nvls") == "false");
}

TEST_CASE("NeMo's names are Megatron-LM's", "[frameworks]") {
  const ImportedPlan plan = import_plan(R"(
trainer: {num_nodes: 4, devices: 8, precision: bf16, gradient_clip_val: 1.0}
model:
  micro_batch_size: 1
  global_batch_size: 64
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 3
  encoder_seq_length: 4096
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  num_query_groups: null
  bias: false
  activation: gelu
  sequence_parallel: True
  activations_checkpoint_granularity: full
  fp8: False
  fp8_hybrid: True
  optim: {name: mcore_distributed_optim, bucket_cap_mb: 220, overlap_grad_sync: True}
  data: {seq_length: 2048}
)",
                                        "nemo.yaml");
  CHECK(plan.framework == "NeMo");
  // 32 GPUs / (4 · 2) = 4.
  CHECK(values_of(plan, "plan.") ==
        "tp 4, pp 2, microbatch 1, dp 4, schedule interleaved, virtual_stages 3, sequence_parallel true, "
        "zero 1, "
        "clip_gradients true, recompute full, precision bf16, gradient_type fp32, overlap.gradient_reduce "
        "true, "
        "overlap.parameter_gather false, bucket 220MiB, kernel_set megatron");
  CHECK(value_of(plan, "model.ffn") == "8192");
  CHECK(value_of(plan, "model.mlp_bias").empty());
  CHECK(value_of(plan, "sequence") == "2048");
  CHECK_THAT(joined(plan.assumed),
             Contains("sequence: model.data.seq_length 2048, not model.encoder_seq_length 4096"));
  CHECK_THAT(joined(plan.left_out), !Contains("fp8"));
  CHECK(value_of(plan, "plan.fp8").empty());
}

TEST_CASE("a file over a recipe has no defaults of Megatron-LM", "[frameworks]") {
  const ImportedPlan plan = import_plan(
      "model: {tensor_model_parallel_size: 2, sequence_parallel: true}\n"
      "train: {micro_batch_size: 1, global_batch_size: 8}\nddp: {grad_reduce_in_fp32: true}\n",
      "override.yaml");
  CHECK(plan.framework == "Megatron-Bridge");
  CHECK(values_of(plan, "plan.") ==
        "tp 2, microbatch 1, sequence_parallel true, gradient_type fp32, kernel_set megatron");
  CHECK_THAT(joined(plan.missing), Contains("model: its sizes come from the framework's recipe"));
}

TEST_CASE("torchtitan's file becomes a plan", "[frameworks]") {
  const std::string text = R"([model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = "full"
)";
  const ImportedPlan open = import_plan(text, "titan.toml");
  CHECK(value_of(open, "plan.dp").empty());
  CHECK_THAT(joined(open.missing), Contains("global_batch: training.local_batch_size 4 times dp"));
  FrameworkImportOptions options;
  options.gpus = 32;
  const ImportedPlan plan = import_plan(text, "titan.toml", options);
  // dp = 32 / 2, two copies of 8 that divide everything; 4 sequences each.
  CHECK(values_of(plan, "plan.") ==
        "tp 2, pp 1, sequence_parallel true, dp 16, zero 3, zero_group 8, zero_reshard true, microbatch 4, "
        "recompute full, precision bf16, gradient_type fp32");
  CHECK(value_of(plan, "global_batch") == "64");
  CHECK(values_of(plan, "model.") == "hidden 4096, layers 32, heads 32, kv_heads 8, ffn 14336, vocab 128256");
}

TEST_CASE("torchtitan's pipelines", "[frameworks]") {
  FrameworkImportOptions options;
  options.gpus = 8;
  const ImportedPlan plan = import_plan(R"([training]
local_batch_size = 8
seq_len = 2048
[parallelism]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "ZBVZeroBubble"
pipeline_parallel_microbatch_size = 2
[activation_checkpoint]
mode = "none"
)",
                                        "titan.toml", options);
  // dp = 8 / 4; FSDP keeps parameters gathered under a pipeline.
  CHECK(
      values_of(plan, "plan.") ==
      "pp 4, dp 2, zero 3, zero_reshard false, microbatch 2, schedule zb-v, recompute none, precision bf16, "
      "gradient_type fp32");
  CHECK(value_of(plan, "global_batch") == "16");
}

TEST_CASE("DeepSpeed's file becomes a plan", "[frameworks]") {
  const ImportedPlan plan = import_plan(R"({
  // Comments are common.
  "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
  "bf16": {"enabled": true}, "gradient_clipping": 1.0,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8, "overlap_comm": true,
                        "offload_optimizer": {"device": "cpu"}}
})",
                                        "ds.json");
  // 64 / (4 · 2) = 8 ranks; buckets of 5e8 gradients of 2 bytes.
  CHECK(values_of(plan, "plan.") ==
        "precision bf16, zero 2, gradient_type bf16, dp 8, microbatch 4, bucket 1GB, overlap.gradient_reduce "
        "true, "
        "overlap.parameter_gather false, clip_gradients true");
  CHECK(value_of(plan, "global_batch") == "64");
  CHECK_THAT(joined(plan.left_out),
             Contains("zero_optimization.offload_optimizer.device cpu: optimiser state stays"));
  CHECK_THAT(joined(plan.missing), Contains("model") && Contains("sequence"));
}

TEST_CASE("what DeepSpeed's trainer sets is assumed and said", "[frameworks]") {
  const ImportedPlan plan = import_plan(
      R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"},
          "gradient_clipping": "auto", "zero_optimization": {"stage": 3}})",
      "ds.json");
  CHECK(value_of(plan, "plan.zero") == "3");
  CHECK(value_of(plan, "plan.precision") == "bf16");
  CHECK_THAT(joined(plan.assumed), Contains("plan.microbatch: 1") && Contains("plan.clip_gradients: true"));
}

TEST_CASE("a layout in a scenario says what each stage holds", "[scenarios]") {
  const std::string eight_layers =
      "plan={tp: 1, pp: 2, dp: 4, schedule: interleaved, layout: \"Ett|tt|ttt|tmL\"}";
  const Scenario scenario = parse_small({eight_layers});
  CHECK_THAT(joined(scenario.notes), Contains("plan.layout: 1 multi-token prediction layer (m) is left out"));
  const Graph graph = build_forward(scenario.model, DType::kBf16);
  const Plan plan = expand(scenario.plan, graph, 8);
  // Blocks: embedding 0, layers 1 … 8, head 9.
  std::vector<std::int32_t> ends;
  for (const Stage& stage : plan.replicas[0].stages) ends.push_back(stage.last_block);
  CHECK(ends == std::vector<std::int32_t>{3, 5, 8, 10});
  CHECK_THAT(message_of(kSmall, {"plan={pp: 2, layout: \"Ett|tx\"}"}),
             Contains("column 6: expected E, t, m, L"));
  CHECK_THAT(message_of(kSmall, {"plan={pp: 2, layers_per_stage: [4, 4], layout: \"Et*4|t*4L\"}"}),
             Contains("plan.layout: says the same as layers_per_stage"));
  const auto refusal = [&](const std::string& layout) {
    try {
      expand(parse_small({"plan={pp: 2, dp: 4, layout: \"" + layout + "\"}"}).plan, graph, 8);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInfeasible);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(refusal("Et*4|t*3L"), Contains("plan.layout: has 7 layers (t), the model has 8 (1 missing)"));
  CHECK_THAT(refusal("Et*4|t*2|t*2L"), Contains("plan.layout: 3 stages, but pp 2"));
}

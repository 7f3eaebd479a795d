// DeepSpeed's JSON (or its part in an accelerate file) as a plan. Defaults are those of
// deepspeed/runtime/zero/config.py and constants.py.

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/units.hpp"
#include "scenarios/framework_mappings.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostBatch = 1'000'000;

constexpr auto kLeftOut = std::to_array<LeftOut>({
    {"zero-optimization.offload-optimizer*", "optimiser state stays on the GPU"},
    {"zero-optimization.offload-param*", "parameters stay on the GPU"},
    {"zero-optimization.cpu-offload*", "optimiser state and parameters stay on the GPU"},
    {"zero-optimization.zero-quantized*", "what is gathered and reduced isn't quantized"},
    {"zero-optimization.reduce-scatter", "gradients are reduce-scattered from zero: 1 on"},
    {"zero-optimization.stage3-prefetch-bucket-size",
     "plan.zero_prefetch counts layers; one is gathered ahead"},
    {"zero-optimization.stage3-param-persistence-threshold",
     "small parameters are gathered as the others are"},
    {"zero-optimization.stage3-max-live-parameters", "plan.zero_prefetch bounds what is gathered"},
    {"zero-optimization.stage3-max-reuse-distance", "parameters are dropped after each use"},
    {"zero-optimization.sub-group-size", "the optimiser's step is one launch a parameter"},
    {"zero-optimization.allgather-bucket-size", "parameters are gathered layer by layer"},
    {"activation-checkpointing.*", "what is recomputed is said in the training code: plan.recompute"},
    {"sparse-attention.*", "attention sees all keys"},
    {"moe.*", "experts are the model's"},
    {"data-efficiency.*", "every step has whole sequences"},
    {"curriculum-learning.*", "every step has whole sequences"},
    {"progressive-layer-drop.*", "no layer is dropped"},
    {"sequence-parallel-size", "Ulysses' all-to-all isn't there; cp divides the sequence"},
    {"optimizer.*", "the optimiser is AdamW"},
    {"compression-training.*", "nothing is compressed"},
    {"aio.*", "nothing is moved to disks"},
    {"communication-data-type", "gradients are reduced in plan.gradient_type"},
    {"prescale-gradients", "scaling gradients takes no time"},
    {"fp16-master-weights-and-grads", "master weights are fp32"},
});

constexpr auto kNoEffect = std::to_array<std::string_view>({
    "-comment",
    "fp16.*",
    "bf16.*",
    "bfloat16.*",
    "amp.*",
    "wall-clock-breakdown",
    "steps-per-print",
    "scheduler.*",
    "tensorboard.*",
    "wandb.*",
    "csv-monitor.*",
    "comet.*",
    "flops-profiler.*",
    "zero-allow-untested-optimizer",
    "zero-force-ds-cpu-optimizer",
    "zero-optimization.allgather-partitions",
    "zero-optimization.contiguous-gradients",
    "zero-optimization.round-robin-gradients",
    "zero-optimization.stage3-gather*",
    "zero-optimization.load-from*",
    "zero-optimization.elastic*",
    "zero-optimization.ignore-unused*",
    "zero-optimization.legacy*",
    "zero-optimization.stage3-module*",
    "checkpoint.*",
    "elasticity.*",
    "autotuning.*",
    "memory-breakdown",
    "dump-state",
    "gradient-predivide-factor",
    "data-types.*",
    "seed",
    "compile.*",
    "pipeline.*",
    "comms-logger.*",
    "nebula.*",
    "hybrid-engine.*",
    "gradient-accumulation-steps",
    "disable-allgather",
    "dataloader-drop-last",
});

class DeepSpeedPlan {
 public:
  DeepSpeedPlan(FrameworkSettings& settings, const FrameworkImportOptions& options, ImportedPlan& plan)
      : s_(settings), options_(options), plan_(plan) {}

  void map() {
    plan_.missing.push_back("model");
    plan_.missing.push_back("sequence: DeepSpeed's settings don't say it");
    precision();
    stage();
    batch();
    buckets();
    clip();
  }

 private:
  // "auto": whoever reads the file (Hugging Face's trainer) sets it.
  bool automatic(std::string_view name) {
    const FrameworkSetting* setting = s_.find(name);
    if (setting == nullptr || setting->value != "auto") return false;
    s_.use(name);
    return true;
  }

  std::optional<std::int64_t> number(std::string_view name, std::int64_t min, std::int64_t most) {
    return automatic(name) ? std::nullopt : s_.integer(name, min, most);
  }

  void precision() {
    s_.rename("bfloat16.enabled", "bf16.enabled");
    const bool open_bf16 = automatic("bf16.enabled"), open_fp16 = automatic("fp16.enabled");
    const bool bf16 = !open_bf16 && s_.on("bf16.enabled"), fp16 = !open_fp16 && s_.on("fp16.enabled");
    const bool open = open_bf16 || open_fp16;
    if (open && !bf16 && !fp16) {
      plan_.assumed.push_back("plan.precision: bf16; the file leaves it to the trainer (\"auto\")");
      plan_.put("plan.precision", "bf16", "bf16.enabled auto");
      type_ = "bf16";
      return;
    }
    type_ = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
    plan_.put("plan.precision", type_,
              bf16   ? "bf16.enabled"
              : fp16 ? "fp16.enabled"
                     : "neither bf16 nor fp16");
  }

  void stage() {
    const auto stage = number("zero-optimization.stage", 0, 3);
    stage_ = stage.value_or(0);
    plan_.put("plan.zero", std::to_string(stage_),
              stage ? s_.written("zero-optimization.stage") : "zero_optimization.stage's default");
    for (const char* name :
         {"zero-optimization.mics-shard-size", "zero-optimization.zero-hpz-partition-size"}) {
      const auto group = number(name, -1, kMaxGpus);
      if (!group || *group < 2) continue;
      if (std::string_view(name).ends_with("mics-shard-size")) {
        plan_.put("plan.zero_group", std::to_string(*group), s_.written(name));
      } else {
        plan_.left_out.push_back(
            fmt::format("{} {}: parameters have no second division inside a node", s_.written(name), *group));
      }
    }
    s_.use("zero-optimization.mics*");
    const auto accumulate = s_.word("data-types.grad-accum-dtype");
    // engine.py: fp32 with bf16 and no ZeRO, else the parameters' type.
    const bool wide =
        accumulate ? *accumulate == "fp32" : type_ == "fp32" || (type_ == "bf16" && stage_ == 0);
    plan_.put("plan.gradient_type", wide ? "fp32" : type_,
              accumulate ? s_.written("data-types.grad-accum-dtype")
                         : fmt::format("goes with {} and stage {}", type_, stage_));
    if (type_ == "bf16" && stage_ == 0) {
      plan_.assumed.push_back(
          "plan.zero: 0 as the file says; DeepSpeed's BF16_Optimizer divides optimiser state all the same "
          "(zero: 1)");
    }
  }

  void batch() {
    const auto micro = number("train-micro-batch-size-per-gpu", 1, kMostBatch);
    const auto global = number("train-batch-size", 1, kMostBatch);
    const auto steps = number("gradient-accumulation-steps", 1, kMostBatch);
    const auto tensor = number("tensor-parallel.autotp-size", 0, kMaxGpus);
    s_.use("tensor-parallel.*");
    ParallelDegrees degrees;
    if (tensor && *tensor > 1) {
      degrees.tp = *tensor;
      plan_.put("plan.tp", std::to_string(*tensor), s_.written("tensor-parallel.autotp-size"));
    }
    // Two of the three give the number of data-parallel ranks.
    std::int64_t said = 0;
    if (micro && global && steps && *global % (*micro * *steps) == 0)
      said = *global / (*micro * *steps) * degrees.tp;
    const auto dp = put_data_parallel(options_, said, "train_batch_size over the other two", degrees, plan_);
    if (global) {
      plan_.put("global_batch", std::to_string(*global), s_.written("train-batch-size"));
    } else if (micro && dp) {
      plan_.put("global_batch", std::to_string(*micro * steps.value_or(1) * *dp),
                "train_micro_batch_size_per_gpu × gradient_accumulation_steps × dp");
    } else {
      plan_.missing.push_back("global_batch: the file doesn't say it");
    }
    if (micro) {
      plan_.put("plan.microbatch", std::to_string(*micro), s_.written("train-micro-batch-size-per-gpu"));
    } else if (global && steps && dp && *global % (*steps * *dp) == 0) {
      plan_.put("plan.microbatch", std::to_string(*global / *steps / *dp),
                "train_batch_size / gradient_accumulation_steps / dp");
    } else {
      plan_.assumed.push_back("plan.microbatch: 1; the file doesn't say it");
    }
  }

  void buckets() {
    const std::int64_t width = plan_.find("plan.gradient_type")->value == "fp32" ? 4 : 2;
    const auto size = number("zero-optimization.reduce-bucket-size", 1, std::int64_t{1} << 45);
    if (size) {
      plan_.put("plan.bucket", exact_bytes(std::max<std::int64_t>(*size * width, 1024)),
                fmt::format("zero_optimization.reduce_bucket_size: {} gradients of {} bytes", *size, width));
    } else if (stage_ > 0) {
      plan_.put("plan.bucket", exact_bytes(500'000'000 * width),
                "reduce_bucket_size's default, 5e8 gradients");
    }
    const auto overlap = automatic("zero-optimization.overlap-comm")
                             ? std::nullopt
                             : s_.boolean("zero-optimization.overlap-comm");
    const bool both = overlap.value_or(stage_ == 3);
    plan_.put("plan.overlap.gradient_reduce", both ? "true" : "false",
              overlap ? s_.written("zero-optimization.overlap-comm") : "overlap_comm's default");
    // ZeRO-1 and 2 gather all parameters after the optimiser's step; ZeRO-3's are prefetched.
    plan_.put("plan.overlap.parameter_gather", stage_ == 3 ? "true" : "false",
              stage_ == 3 ? "stage 3 prefetches" : "parameters are gathered after the step");
  }

  void clip() {
    const std::string name = "gradient-clipping";
    if (automatic(name)) {
      plan_.assumed.push_back("plan.clip_gradients: true; the file leaves it to the trainer (\"auto\")");
      return;
    }
    const auto norm = s_.number(name);
    plan_.put("plan.clip_gradients", norm.value_or(0) > 0 ? "true" : "false",
              norm ? s_.written(name) : "gradient_clipping's default");
  }

  FrameworkSettings& s_;
  const FrameworkImportOptions& options_;
  ImportedPlan& plan_;
  std::int64_t stage_ = 0;
  std::string type_;
};

}  // namespace

void map_deepspeed(FrameworkSettings& settings, const FrameworkImportOptions& options, ImportedPlan& plan) {
  DeepSpeedPlan(settings, options, plan).map();
  sort_rest(settings, kLeftOut, kNoEffect, plan);
}

}  // namespace orrery

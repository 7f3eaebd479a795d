// torchtitan's TOML as a plan. Defaults are those of torchtitan/config/job_config.py.

#include <fmt/ranges.h>
#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostSequence = std::int64_t{1} << 24;
constexpr std::int64_t kMostBatch = 1'000'000;

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kNoFp8 =
    "products run in the 16-bit type; plan.fp8: tensor runs those of layers in FP8";

// Where settings stood before 2025.
constexpr auto kOldNames = std::to_array<Pair>({
    {"training.batch-size", "training.local-batch-size"},
    {"training.data-parallel-degree", "parallelism.data-parallel-shard-degree"},
    {"training.data-parallel-shard-degree", "parallelism.data-parallel-shard-degree"},
    {"training.data-parallel-replicate-degree", "parallelism.data-parallel-replicate-degree"},
    {"training.tensor-parallel-degree", "parallelism.tensor-parallel-degree"},
    {"training.pipeline-parallel-degree", "parallelism.pipeline-parallel-degree"},
    {"experimental.context-parallel-degree", "parallelism.context-parallel-degree"},
    {"experimental.pipeline-parallel-degree", "parallelism.pipeline-parallel-degree"},
    {"experimental.pipeline-parallel-schedule", "parallelism.pipeline-parallel-schedule"},
    {"experimental.pipeline-parallel-split-points", "parallelism.pipeline-parallel-split-points"},
    {"experimental.pipeline-parallel-microbatches", "parallelism.pipeline-parallel-microbatches"},
    {"experimental.enable-async-tensor-parallel", "parallelism.enable-async-tensor-parallel"},
    {"training.enable-async-tensor-parallel", "parallelism.enable-async-tensor-parallel"},
    {"experimental.context-parallel-rotate-method", "parallelism.context-parallel-rotate-method"},
    {"training.fsdp-reshard-after-forward", "parallelism.fsdp-reshard-after-forward"},
    {"training.compile", "compile.enable"},
    {"optimizer.max-norm", "training.max-norm"},
});

// PyTorch's names of schedules (torch/distributed/pipelining/schedules.py).
constexpr auto kSchedules = std::to_array<Pair>({
    {"1F1B", "1f1b"},
    {"1f1b", "1f1b"},
    {"Schedule1F1B", "1f1b"},
    {"GPipe", "gpipe"},
    {"gpipe", "gpipe"},
    {"ScheduleGPipe", "gpipe"},
    {"Interleaved1F1B", "interleaved"},
    {"interleaved_1f1b", "interleaved"},
    {"ScheduleInterleaved1F1B", "interleaved"},
    {"LoopedBFS", "looped-bfs"},
    {"ScheduleLoopedBFS", "looped-bfs"},
    {"ZBVZeroBubble", "zb-v"},
    {"ScheduleZBVZeroBubble", "zb-v"},
    {"DualPipeV", "dualpipe-v"},
    {"ScheduleDualPipeV", "dualpipe-v"},
});

constexpr auto kLeftOut = std::to_array<LeftOut>({
    {"parallelism.enable-async-tensor-parallel",
     "tensor-parallel communication isn't overlapped with the products"},
    {"parallelism.enable-compiled-autograd", "kernels are those of plan.kernel_set"},
    {"parallelism.pipeline-parallel-schedule-csv", "schedules are named, not read"},
    {"parallelism.pipeline-parallel-split-points", "plan.layers_per_stage says it; stages are even"},
    {"parallelism.disable-loss-parallel", "the loss is divided over the vocabulary"},
    {"parallelism.module-fqns-per-model-part", "plan.layers_per_stage says it; stages are even"},
    {"parallelism.expert-parallel-comm-backend", "experts' rows are exchanged by NCCL's all-to-all"},
    {"training.enable-cpu-offload", "nothing is moved to the host"},
    {"model.converters", "products run in the 16-bit type"},
    {"float8.*", kNoFp8},
    {"quantize.*", kNoFp8},
    {"mx.*", "plan.fp8: block has fp32 scales of 128 elements, not of 32; products run in the 16-bit type"},
    {"compile.enable", "kernels are those of plan.kernel_set, not torch.compile's"},
    {"model.use-flex-attn", "attention is one fused kernel"},
    {"fault-tolerance.*", "replicas don't fail"},
});

constexpr auto kNoEffect = std::to_array<std::string_view>({
    "job.*",
    "profiling.*",
    "metrics.*",
    "checkpoint.*",
    "validation.*",
    "lr-scheduler.*",
    "optimizer.*",
    "comm.*",
    "training.*",
    "memory-estimation.*",
    "experimental.*",
    "model.*",
    "compile.*",
    "debug.*",
    "activation-checkpoint.*",
    "version",
    "tokenizer.*",
});

class TorchtitanPlan {
 public:
  TorchtitanPlan(FrameworkSettings& settings, const FrameworkImportOptions& options, ImportedPlan& plan)
      : s_(settings), options_(options), plan_(plan) {}

  void map() {
    for (const auto& [old_name, name] : kOldNames) s_.rename(old_name, name);
    if (const auto length = s_.integer("training.seq-len", 1, kMostSequence)) {
      plan_.put("sequence", std::to_string(*length), s_.written("training.seq-len"));
    }
    degrees();
    fully_sharded();
    batch();
    schedule();
    recompute();
    precision();
    plan_.assumed.push_back(
        "plan.kernel_set: orrery's own; PyTorch's launches are more (--verbose says what one costs)");
  }

 private:
  std::int64_t degree(const std::string& name, std::string_view key) {
    const std::string full = "parallelism." + name + "-parallel-degree";
    const auto value = s_.integer(full, 1, kMaxGpus);
    if (value) plan_.put("plan." + std::string(key), std::to_string(*value), s_.written(full));
    return value.value_or(1);
  }

  void degrees() {
    degrees_.tp = degree("tensor", "tp");
    degrees_.cp = degree("context", "cp");
    degrees_.pp = degree("pipeline", "pp");
    const auto experts = s_.integer("parallelism.expert-parallel-degree", 1, kMaxGpus);
    if (experts && *experts > 1) degrees_.ep = degree("expert", "ep");
    if (const auto tensor = s_.integer("parallelism.expert-tensor-parallel-degree", 1, kMaxGpus);
        tensor && *tensor != degrees_.tp && degrees_.ep > 1) {
      plan_.put("plan.expert_tensor_parallel", std::to_string(*tensor),
                "parallelism.expert_tensor_parallel_degree");
    }
    // torchtitan's tensor-parallel plans divide norms along the sequence, always.
    if (degrees_.tp > 1) plan_.put("plan.sequence_parallel", "true", "goes with tensor_parallel_degree");
    const auto rotate = s_.word("parallelism.context-parallel-rotate-method");
    if (degrees_.cp > 1) {
      // "alltoall" passes keys and values round, a step at a time.
      plan_.put("plan.context_parallel_form",
                rotate.value_or("allgather") == "alltoall" ? "ring" : "all_gather",
                rotate ? s_.written("parallelism.context-parallel-rotate-method")
                       : "context_parallel_rotate_method's default");
    }
  }

  // Data parallelism: copies (replicate) of groups that divide everything (shard, FSDP2).
  void fully_sharded() {
    const auto replicate = s_.integer("parallelism.data-parallel-replicate-degree", 1, kMaxGpus).value_or(1);
    const auto shard = s_.integer("parallelism.data-parallel-shard-degree", -1, kMaxGpus).value_or(-1);
    const std::string written = s_.has("parallelism.data-parallel-shard-degree")
                                    ? s_.written("parallelism.data-parallel-shard-degree")
                                    : "parallelism.data_parallel_shard_degree's default";
    if (shard == 0)
      s_.fault("parallelism.data-parallel-shard-degree", "is 0; expected -1 (the ranks left) or more");
    const std::int64_t said = shard > 0 ? replicate * shard * degrees_.model_parallel() : 0;
    dp_ = put_data_parallel(options_, said, "the product of the degrees", degrees_, plan_);
    if (dp_ && *dp_ % replicate != 0) {
      s_.fault("parallelism.data-parallel-replicate-degree",
               fmt::format("{} doesn't divide dp {}", replicate, *dp_));
      return;
    }
    const std::int64_t sharded = shard > 0 ? shard : dp_ ? *dp_ / replicate : 0;
    const bool divides = sharded != 1 || degrees_.cp > 1;  // Context-parallel ranks divide parameters too.
    plan_.put("plan.zero", divides ? "3" : "0", written + (divides ? ": FSDP2" : ": nothing is divided"));
    if (!divides) return;
    if (replicate > 1 && sharded > 0) {
      plan_.put("plan.zero_group", std::to_string(sharded * degrees_.cp),
                "data_parallel_shard_degree × cp: HSDP");
    } else if (replicate > 1) {
      plan_.missing.push_back("plan.zero_group: the ranks left by data_parallel_replicate_degree (--gpus)");
    }
    const auto policy = s_.word("parallelism.fsdp-reshard-after-forward").value_or("default");
    const bool reshard = policy == "always" || (policy != "never" && degrees_.pp == 1);
    plan_.put("plan.zero_reshard", reshard ? "true" : "false",
              s_.has("parallelism.fsdp-reshard-after-forward")
                  ? s_.written("parallelism.fsdp-reshard-after-forward")
                  : "fsdp_reshard_after_forward's default");
  }

  void batch() {
    const auto local = s_.integer("training.local-batch-size", 1, kMostBatch).value_or(8);
    const auto global = s_.integer("training.global-batch-size", -1, kMostBatch).value_or(-1);
    const std::string written = s_.has("training.local-batch-size") ? s_.written("training.local-batch-size")
                                                                    : "training.local_batch_size's default";
    std::int64_t micro = local;
    std::string source = written;
    if (degrees_.pp > 1) {
      const auto size = s_.integer("parallelism.pipeline-parallel-microbatch-size", 1, kMostBatch);
      const auto count = s_.integer("parallelism.pipeline-parallel-microbatches", 1, kMostBatch);
      micro = size.value_or(count && local % *count == 0 ? local / *count : 1);
      source = size ? s_.written("parallelism.pipeline-parallel-microbatch-size")
                    : "pipeline_parallel_microbatch_size's default";
    }
    s_.use("parallelism.pipeline-parallel-microbatch*");
    plan_.put("plan.microbatch", std::to_string(micro), source);
    if (global > 0) {
      plan_.put("global_batch", std::to_string(global), s_.written("training.global-batch-size"));
    } else if (dp_) {
      plan_.put("global_batch", std::to_string(local * *dp_),
                fmt::format("{} {} × dp {}", written, local, *dp_));
    } else {
      plan_.missing.push_back(
          fmt::format("global_batch: {} {} times dp, which depends on the GPUs (--gpus)", written, local));
    }
  }

  void schedule() {
    const auto name = s_.word("parallelism.pipeline-parallel-schedule");
    const auto each = s_.integer("parallelism.pipeline-parallel-layers-per-stage", 1, 100'000);
    s_.use("parallelism.pipeline-parallel-first-stage-less-layers");
    s_.use("parallelism.pipeline-parallel-last-stage-less-layers");
    if (degrees_.pp == 1) return;
    const std::string_view wanted = name ? std::string_view(*name) : "1F1B";
    const auto found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                    [&](const Pair& entry) { return entry.first == wanted; });
    if (found != kSchedules.end()) {
      plan_.put("plan.schedule", std::string(found->second),
                name ? s_.written("parallelism.pipeline-parallel-schedule")
                     : "pipeline_parallel_schedule's default");
    } else {
      plan_.left_out.push_back(
          fmt::format("parallelism.pipeline_parallel_schedule {}: 1f1b in its place", wanted));
    }
    const ImportedKey* layers = plan_.find("model.layers");
    if (!each) return;
    const auto count = layers == nullptr ? std::nullopt : parse_integer(layers->value);
    const std::int64_t stages = count ? (*count + *each - 1) / *each : 0;
    if (stages > 0 && stages % degrees_.pp == 0) {
      plan_.put("plan.virtual_stages", std::to_string(stages / degrees_.pp),
                s_.written("parallelism.pipeline-parallel-layers-per-stage"));
    } else {
      plan_.left_out.push_back(fmt::format(
          "parallelism.pipeline_parallel_layers_per_stage {}: virtual stages as the schedule usually has",
          *each));
    }
  }

  void recompute() {
    const auto mode = s_.word("activation-checkpoint.mode").value_or("selective");
    const auto option = s_.word("activation-checkpoint.selective-ac-option").value_or("2");
    if (mode == "full") {
      plan_.put("plan.recompute", "full", s_.written("activation-checkpoint.mode"));
    } else if (mode == "none") {
      plan_.put("plan.recompute", "none", s_.written("activation-checkpoint.mode"));
    } else if (option == "op") {
      plan_.put("plan.recompute", "[norms, activation_functions]",
                s_.written("activation-checkpoint.selective-ac-option"));
      plan_.assumed.push_back(
          "plan.recompute: norms and activation functions; torchtitan's list makes every second product "
          "again too");
    } else {
      plan_.left_out.push_back(
          fmt::format("activation_checkpoint.mode {}, every {}: recompute is the same in all layers; nothing "
                      "is recomputed",
                      mode, option));
    }
  }

  void precision() {
    const auto parameters = s_.word("training.mixed-precision-param").value_or("bfloat16");
    const auto reduce = s_.word("training.mixed-precision-reduce").value_or("float32");
    const auto name = [](const std::string& type) {
      return type == "bfloat16" ? "bf16" : type == "float16" ? "fp16" : "fp32";
    };
    const auto source = [&](const std::string& setting, const char* otherwise) {
      return s_.has(setting) ? s_.written(setting) : std::string(otherwise);
    };
    plan_.put("plan.precision", name(parameters),
              source("training.mixed-precision-param", "mixed_precision_param's default"));
    plan_.put("plan.gradient_type", name(reduce),
              source("training.mixed-precision-reduce", "mixed_precision_reduce's default"));
    const auto norm = s_.number("training.max-norm");
    if (norm) plan_.put("plan.clip_gradients", *norm > 0 ? "true" : "false", s_.written("training.max-norm"));
  }

  FrameworkSettings& s_;
  const FrameworkImportOptions& options_;
  ImportedPlan& plan_;
  ParallelDegrees degrees_;
  std::optional<std::int64_t> dp_;
};

}  // namespace

void map_torchtitan(FrameworkSettings& settings, const FrameworkImportOptions& options, ImportedPlan& plan) {
  map_torchtitan_model(settings, plan);
  TorchtitanPlan(settings, options, plan).map();
  // fp8 settings say nothing while no converter uses them.
  const FrameworkSetting* converters = settings.find("model.converters");
  const FrameworkSetting* old_switch = settings.find("float8.enable-float8-linear");
  const bool uses = (converters != nullptr && converters->value != "[]") ||
                    (old_switch != nullptr && old_switch->value == "true");
  if (!uses) {
    for (const char* section : {"float8.*", "quantize.*", "mx.*", "model.converters"}) settings.use(section);
  }
  sort_rest(settings, kLeftOut, kNoEffect, plan);
}

}  // namespace orrery

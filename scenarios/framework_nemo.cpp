// NeMo (its first generation's YAML and NeuronX Distributed's, which follows it), Megatron-Bridge and Primus:
// the same arguments as Megatron-LM's in sections, some under other names.

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "scenarios/framework_mappings.hpp"
#include "scenarios/reader.hpp"

namespace orrery {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// Sections whose settings are known by their own names; a longer one comes first.
constexpr auto kSections = std::to_array<std::string_view>({"model.optim.",
                                                            "model.data.",
                                                            "model.moe.",
                                                            "model.fusions.",
                                                            "model.tokenizer.",
                                                            "distributed-strategy.",
                                                            "model-parallel.",
                                                            "language-model.",
                                                            "model.",
                                                            "train.",
                                                            "ddp.",
                                                            "data.",
                                                            "dataset.",
                                                            "trainer.",
                                                            "optimizer.",
                                                            "optim.",
                                                            "tokenizer.",
                                                            "mixed-precision.",
                                                            "precision.",
                                                            "comm-overlap.",
                                                            "dist."});

constexpr auto kWholeNames = std::to_array<Pair>({
    {"model.optim.name", "optimizer-name"},
    {"optim.name", "optimizer-name"},
    {"tokenizer.model", "tokenizer-model"},
    {"model.tokenizer.model", "tokenizer-model"},
    {"tokenizer.type", "tokenizer-type"},
    {"model.tokenizer.type", "tokenizer-type"},
    {"model.precision", "model-precision"},
});

constexpr auto kNames = std::to_array<Pair>({
    {"num-moe-experts", "num-experts"},
    {"top-k", "moe-router-topk"},
    {"capacity-factor", "moe-expert-capacity-factor"},
    {"activations-checkpoint-granularity", "recompute-granularity"},
    {"activations-checkpoint-method", "recompute-method"},
    {"activations-checkpoint-num-layers", "recompute-num-layers"},
    {"rotary-percentage", "rotary-percent"},
    {"ub-tp-comm-overlap", "tp-comm-overlap"},
    {"overlap-grad-sync", "overlap-grad-reduce"},
    {"overlap-param-sync", "overlap-param-gather"},
    {"gradient-clip-val", "clip-grad"},
    {"clip-grad-norm", "clip-grad"},
    {"devices", "num-gpus"},
    {"zero1", "use-distributed-optimizer"},
    {"moe-router-score-func", "moe-router-score-function"},
    {"virtual-pipeline-parallel-size", "virtual-pipeline-model-parallel-size"},
});

// Beside those of Megatron-LM.
constexpr auto kNoEffect = std::to_array<std::string_view>({
    "run.*",
    "hydra.*",
    "defaults",
    "exp-manager.*",
    "name",
    "model-source",
    "results-dir",
    "logger*",
    "log-every*",
    "enable-checkpointing",
    "use-distributed-sampler",
    "max-epochs",
    "max-steps",
    "max-time",
    "val-check*",
    "check-val*",
    "limit-*",
    "num-sanity*",
    "accelerator",
    "accumulate-grad-batches",
    "enable-model-summary",
    "resume*",
    "pre-process",
    "post-process",
    "gradient-as-bucket-view",
    "grad-div-ar-fusion",
    "gradient-accumulation-fusion",
    "bias-activation-fusion",
    "bias-dropout-add-fusion",
    "masked-softmax-fusion",
    "get-attention-mask*",
    "native-amp*",
    "megatron-amp*",
    "grad-allreduce-chunk*",
    "mcore-*",
    "transformer-engine",
    "sync-batch-comm",
    "onnx-safe",
    "apex-*",
    "gc-interval",
    "nsys-profile*",
    "sched*",
    "betas",
    "eps",
    "contiguous-*",
    "splits-string",
    "skip-warmup",
    "index-mapping*",
    "library",
    "delimiter",
    "use-fast",
    "do-layer-norm-weight-decay",
    "headscale",
    "transformer-block-type",
    "openai-gelu",
    "normalize-attention*",
    "attention-type",
    "batch-p2p-comm",
    "overlap-p2p-comm",
    "use-emha",
    "reduce-amax",
    "ffn-dropout",
    "use-flash-attention",
    "flash-attention",
    "fsdp-*",
    "scheduler.*",
    "checkpoint.*",
    "rng.*",
    "compiler*",
    "neuron*",
    "aync-*",
    "exp-dir",
    "capturable",
    "train-dir",
    "model-config",
    "work-group",
    "user-name",
    "exp-name",
    "workspace",
    "framework",
    "config",
    "stderr-sink*",
    "layernorm-zero*",
    "share-*",
    "routing-algorithm",
    "router-aux*",
    "output-router*",
    "normalize-top-k*",
    "frequency",
    "dropout",
    "softmax",
    "dropless",
    "sharp",
    "fp16-lm-cross-entropy",
    "cross-entropy*",
    "finetune-lr",
    "master-weights",
    "fp32-grad*",
    "xla-*",
    "bucket-size-collectives",
    "enable-recovery*",
    "use-scaled*",
    "use-pytorch*",
    "use-te-rng*",
    "disable-last*",
    "trainable",
    "warmup*",
    "constant-steps",
    "average-in-collective",
});

void copy_switch(FrameworkSettings& s, std::string_view name, std::string_view off, std::string_view to) {
  const FrameworkSetting* setting = s.find(name);
  if (setting == nullptr) return;
  const bool is_off = setting->value == "false" || setting->value == "False";
  if (is_off == (off == "false")) s.set(to, "true", name);
  s.use(name);
}

// "bf16", "bf16-mixed", 16, "mixed_precision" …
void precision(FrameworkSettings& s) {
  for (const char* name : {"precision", "mixed-precision", "type"}) {
    const FrameworkSetting* setting = s.find(name);
    if (setting == nullptr || s.has("bf16") || s.has("fp16")) continue;
    const std::string value = setting->value;
    if (value.starts_with("bf16")) {
      s.set("bf16", "true", name);
    } else if (value.starts_with("16") || value.starts_with("fp16")) {
      s.set("fp16", "true", name);
    } else if (value.starts_with("mixed_precision")) {
      s.set("bf16", "true", name);  // NeuronX Distributed: bf16 with fp32 master weights.
    } else if (!value.starts_with("32")) {
      continue;
    }
    s.use(name);
  }
}

void optimiser(FrameworkSettings& s) {
  const FrameworkSetting* name = s.find("optimizer-name");
  if (name == nullptr) return;
  if (name->value.find("distributed") != std::string::npos)
    s.set("use-distributed-optimizer", "true", "optimizer-name");
  s.use("optimizer-name");
}

// The sequence that is trained on is the data's; the model's is the longest.
void sequence(FrameworkSettings& s, ImportedPlan& plan) {
  const FrameworkSetting* model = s.find("encoder-seq-length");
  const FrameworkSetting* data = s.find("seq-length");
  if (model != nullptr && data != nullptr && model->value != data->value) {
    plan.assumed.push_back(fmt::format("sequence: {} {}, not {} {}", data->written, show_unknown(data->value),
                                       model->written, show_unknown(model->value)));
  }
  s.rename("encoder-seq-length", "seq-length");
  s.use("encoder-seq-length");
}

}  // namespace

void pass_over_nemo(FrameworkSettings& settings, ImportedPlan& plan) {
  sort_rest(settings, {}, kNoEffect, plan, Unlisted::kStays);
}

MegatronDialect rename_nemo(FrameworkSettings& settings, ImportedPlan& plan) {
  settings.strip(kSections, kWholeNames);
  for (const auto& [from, to] : kNames) settings.rename(from, to);
  settings.use("model-precision");  // trainer.precision again.
  sequence(settings, plan);
  copy_switch(settings, "bias", "false", "disable-bias-linear");
  copy_switch(settings, "add-bias-linear", "false", "disable-bias-linear");
  copy_switch(settings, "share-embeddings-and-output-weights", "false",
              "untie-embeddings-and-output-weights");
  copy_switch(settings, "gated-linear-unit", "true", "swiglu");
  if (const FrameworkSetting* activation = settings.find("activation"); activation != nullptr) {
    if (activation->value.find("swiglu") != std::string::npos) settings.set("swiglu", "true", "activation");
    settings.use("activation");
  }
  if (settings.has("num-query-groups") && !settings.has("group-query-attention")) {
    settings.set("group-query-attention", "true", "num-query-groups");
  }
  if (const FrameworkSetting* fsdp = settings.find("fsdp"); fsdp != nullptr) {
    if (fsdp->value == "true" || fsdp->value == "True") settings.set("use-torch-fsdp2", "true", "fsdp");
    settings.use("fsdp");
  }
  if (const FrameworkSetting* tokenizer = settings.find("tokenizer-type");
      tokenizer != nullptr && !settings.has("tokenizer-model")) {
    settings.set("tokenizer-model", tokenizer->value, "tokenizer-type");  // A Hugging Face name.
  }
  if (settings.has("fp8") && settings.find("fp8")->value != "true" && settings.find("fp8")->value != "True") {
    settings.use("fp8*");
  }
  precision(settings);
  optimiser(settings);
  // NeMo's files hold everything; the others are laid over a recipe.
  const bool whole = settings.has("num-layers") || settings.has("hidden-size");
  return {.recipe = !whole};
}

}  // namespace orrery

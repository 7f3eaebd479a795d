// Megatron-LM's arguments as a plan. Defaults are those of megatron/training/arguments.py.

#include <fmt/ranges.h>
#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "planner/schedule_layout.hpp"
#include "scenarios/framework_megatron_flags.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostSequence = std::int64_t{1} << 24;
constexpr std::int64_t kMostBatch = 1'000'000;

struct Direct {
  std::string_view flag, key;
  std::int64_t most;
};

constexpr auto kWholeNumbers = std::to_array<Direct>({
    {"tensor-model-parallel-size", "plan.tp", kMaxGpus},
    {"pipeline-model-parallel-size", "plan.pp", kMaxGpus},
    {"context-parallel-size", "plan.cp", kMaxGpus},
    {"expert-model-parallel-size", "plan.ep", kMaxGpus},
    {"micro-batch-size", "plan.microbatch", kMostBatch},
    {"make-vocab-size-divisible-by", "plan.vocab_multiple", 65536},
});

// What people called arguments before, or call them in one of the forks.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"model-parallel-size", "tensor-model-parallel-size"},
    {"num-attention-head", "num-attention-heads"},
    {"use-custom-fsdp", "use-megatron-fsdp"},
    {"enable-cuda-graph", "cuda-graph"},
    {"external-cuda-graph", "cuda-graph"},
    {"decoder-first-pipeline-num-layers", "num-layers-in-first-pipeline-stage"},
    {"decoder-last-pipeline-num-layers", "num-layers-in-last-pipeline-stage"},
    {"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
});

class MegatronPlan {
 public:
  MegatronPlan(FrameworkSettings& settings, const FrameworkImportOptions& options,
               const MegatronDialect& dialect, ImportedPlan& plan)
      : s_(settings), options_(options), dialect_(dialect), plan_(plan) {}

  void map() {
    for (const auto& [old_name, name] : kOtherNames) s_.rename(old_name, name);
    if (const auto length = s_.integer("seq-length", 1, kMostSequence)) {
      plan_.put("sequence", std::to_string(*length), s_.written("seq-length"));
    }
    const auto batch = s_.integer("global-batch-size", 1, kMostBatch);
    if (batch) plan_.put("global_batch", std::to_string(*batch), s_.written("global-batch-size"));
    for (const Direct& direct : kWholeNumbers) {
      if (const auto value = s_.integer(direct.flag, 1, direct.most)) put(direct.key, *value, direct.flag);
    }
    data_parallel(batch.has_value());
    pipeline();
    experts();
    state();
    recompute();
    precision();
    fp8();
    overlap();
    graphs_and_kernels();
  }

 private:
  void put(std::string_view key, std::int64_t value, std::string_view flag) {
    plan_.put(std::string(key), std::to_string(value), s_.written(flag));
  }

  std::int64_t degree(std::string_view key) const {
    const ImportedKey* found = plan_.find(key);
    return found == nullptr ? 1 : parse_integer(found->value).value_or(1);
  }

  // A number of the launcher's, which may be anything.
  std::int64_t launched(std::string_view name) {
    const FrameworkSetting* setting = s_.find(name);
    const auto value = setting == nullptr ? std::nullopt : parse_integer(setting->value);
    s_.use(name);
    return value && *value > 0 && *value <= kMaxGpus ? *value : 0;
  }

  void data_parallel(bool has_batch) {
    const std::int64_t per_node = std::max(launched("nproc-per-node"), launched("num-gpus"));
    const std::int64_t nodes = std::max(launched("nnodes"), launched("num-nodes"));
    const ParallelDegrees degrees{degree("plan.tp"), degree("plan.cp"), degree("plan.pp"), degree("plan.ep")};
    const auto dp =
        put_data_parallel(options_, per_node * nodes,
                          fmt::format("{} nodes of {} GPUs in the file", nodes, per_node), degrees, plan_);
    if (has_batch || dialect_.recipe) return;
    // Without --global-batch-size there is one micro-batch a step.
    if (dp) {
      plan_.put("global_batch", std::to_string(*dp * degree("plan.microbatch")), "micro-batch size × dp");
    } else {
      plan_.missing.push_back(
          "global_batch: the micro-batch size times dp, which depends on the GPUs (--gpus)");
    }
  }

  // Layers of each virtual stage where first and last differ: `first` and `last` are what a whole pipeline
  // position has.
  void put_layers(std::int64_t layers, std::int64_t virtual_stages, std::optional<std::int64_t> first,
                  std::optional<std::int64_t> last, const std::string& source) {
    const std::int64_t pp = degree("plan.pp");
    const std::int64_t others = pp - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t rest = layers - first.value_or(0) - last.value_or(0);
    const bool fits = others >= 0 && rest >= 0 &&
                      (others == 0 ? rest == 0 : rest % (others * virtual_stages) == 0) &&
                      first.value_or(0) % virtual_stages == 0 && last.value_or(0) % virtual_stages == 0;
    if (!fits) {
      plan_.left_out.push_back(
          fmt::format("{}: {} layers don't divide so over pp {} with {} virtual stages each", source, layers,
                      pp, virtual_stages));
      return;
    }
    std::vector<std::int64_t> round(static_cast<std::size_t>(pp),
                                    others > 0 ? rest / others / virtual_stages : 0);
    if (first) round.front() = *first / virtual_stages;
    if (last) round.back() = *last / virtual_stages;
    std::vector<std::int64_t> all;
    for (std::int64_t v = 0; v < virtual_stages; ++v) all.insert(all.end(), round.begin(), round.end());
    plan_.put("plan.layers_per_stage", fmt::format("[{}]", fmt::join(all, ", ")), source);
  }

  // The embedding and the head count as a layer each.
  void put_counted_layers(std::int64_t layers, std::int64_t stages, bool embedding, bool loss,
                          const std::string& source) {
    const std::int64_t total = layers + (embedding ? 1 : 0) + (loss ? 1 : 0);
    if (stages < 2 || total % stages != 0) {
      plan_.left_out.push_back(fmt::format(
          "{}: {} layers with embedding and head don't divide over {} stages", source, total, stages));
      return;
    }
    std::vector<std::int64_t> all(static_cast<std::size_t>(stages), total / stages);
    if (embedding) --all.front();
    if (loss) --all.back();
    plan_.put("plan.layers_per_stage", fmt::format("[{}]", fmt::join(all, ", ")), source);
  }

  std::int64_t virtual_stages(std::optional<std::int64_t> layers, std::string& source) {
    const std::int64_t pp = degree("plan.pp");
    if (const auto count = s_.integer("num-virtual-stages-per-pipeline-rank", 1, 1024)) {
      source = s_.written("num-virtual-stages-per-pipeline-rank");
      return *count;
    }
    const auto each = s_.integer("num-layers-per-virtual-pipeline-stage", 1, 100'000);
    if (!each) return 1;
    source = s_.written("num-layers-per-virtual-pipeline-stage");
    if (!layers) {
      plan_.left_out.push_back(source + ": the number of layers isn't said");
      return 1;
    }
    if (*layers % (pp * *each) == 0) return *layers / pp / *each;
    plan_.left_out.push_back(
        fmt::format("{}: {} layers don't divide over pp {} in stages of {}", source, *layers, pp, *each));
    return 1;
  }

  void pipeline() {
    const std::int64_t pp = degree("plan.pp");
    const FrameworkSetting* layers_setting = s_.find("num-layers");
    const auto layers = layers_setting == nullptr ? std::nullopt : s_.integer("num-layers", 1, 10'000);
    const auto group = s_.integer("microbatch-group-size-per-virtual-pipeline-stage", 1, 1'000'000);
    const auto layout = s_.word("pipeline-model-parallel-layout");
    const bool embedding_counts = s_.on("account-for-embedding-in-pipeline-split");
    const bool loss_counts = s_.on("account-for-loss-in-pipeline-split");
    const auto first = s_.integer("num-layers-in-first-pipeline-stage", 0, 100'000);
    const auto last = s_.integer("num-layers-in-last-pipeline-stage", 0, 100'000);
    const auto method = s_.word("pp-partition-method");  // Megatron-DeepSpeed.
    std::string source = "pp without virtual stages";
    std::int64_t virtuals = virtual_stages(layers, source);
    if (pp == 1) return;
    if (layout) {
      virtuals = put_layout(*layout, pp);
      source = s_.written("pipeline-model-parallel-layout");
    } else if (layers && (first || last)) {
      put_layers(
          *layers, virtuals, first, last,
          s_.written(first ? "num-layers-in-first-pipeline-stage" : "num-layers-in-last-pipeline-stage"));
    } else if (layers && (embedding_counts || loss_counts)) {
      put_counted_layers(*layers, pp * virtuals, embedding_counts, loss_counts,
                         s_.written(embedding_counts ? "account-for-embedding-in-pipeline-split"
                                                     : "account-for-loss-in-pipeline-split"));
    } else if (layers && method && method->find("transformer|embedding") != std::string::npos) {
      put_counted_layers(*layers, pp, true, true, s_.written("pp-partition-method"));
    }
    plan_.put("plan.schedule", virtuals > 1 ? "interleaved" : "1f1b", source);
    if (virtuals > 1) plan_.put("plan.virtual_stages", std::to_string(virtuals), source);
    if (virtuals > 1 && group)
      put("plan.interleave_group", *group, "microbatch-group-size-per-virtual-pipeline-stage");
  }

  std::int64_t put_layout(const std::string& text, std::int64_t pp) {
    try {
      const auto stages = static_cast<std::int64_t>(parse_layout(text).size());
      plan_.put("plan.layout", fmt::format("\"{}\"", text), s_.written("pipeline-model-parallel-layout"));
      if (stages % pp == 0) return stages / pp;
      s_.fault("pipeline-model-parallel-layout",
               fmt::format("has {} stages, which pp {} doesn't divide", stages, pp));
    } catch (const Error& error) {
      s_.fault("pipeline-model-parallel-layout", fmt::format("is {}: {}", quote(text), error.what()));
    }
    return 1;
  }

  void experts() {
    const auto tensor = s_.integer("expert-tensor-parallel-size", 1, kMaxGpus);
    if (tensor && *tensor != degree("plan.tp")) {
      plan_.put("plan.expert_tensor_parallel", std::to_string(*tensor),
                s_.written("expert-tensor-parallel-size"));
    }
    if (const auto factor = s_.number("moe-expert-capacity-factor"); factor && *factor > 0) {
      plan_.put("plan.expert_capacity_factor", fmt::format("{}", *factor),
                s_.written("moe-expert-capacity-factor"));
    }
    s_.use("moe-pad-expert-input-to-capacity");
    const auto dispatcher = s_.find("moe-token-dispatcher-type");
    if (dispatcher != nullptr && dispatcher->value == "alltoall") s_.use("moe-token-dispatcher-type");
    const std::string form = s_.word("cp-comm-type").value_or("p2p");
    if (degree("plan.cp") == 1) return;
    const std::string source =
        s_.has("cp-comm-type") ? s_.written("cp-comm-type") : "cp-comm-type's default, p2p";
    if (form == "p2p" || form == "all_gather") {
      plan_.put("plan.context_parallel_form", form == "p2p" ? "ring" : "all_gather", source);
    } else {
      plan_.left_out.push_back(fmt::format("{} {}: keys and values are gathered", source, form));
    }
  }

  // What data-parallel ranks divide.
  void state() {
    const auto sequence_parallel = s_.boolean("sequence-parallel");
    if (sequence_parallel) {
      // Megatron-LM switches it off itself where there is nothing to divide.
      const bool divides = *sequence_parallel && degree("plan.tp") > 1;
      plan_.put(
          "plan.sequence_parallel", divides ? "true" : "false",
          s_.written("sequence-parallel") + (divides == *sequence_parallel ? "" : ", which needs tp > 1"));
    }
    const bool distributed = s_.on("use-distributed-optimizer");
    const auto stage = s_.integer("zero-stage", 0, 3);
    const auto strategy = s_.word("data-parallel-sharding-strategy");
    if (s_.on("use-torch-fsdp2")) {
      put("plan.zero", 3, "use-torch-fsdp2");
    } else if (s_.on("use-megatron-fsdp") || strategy) {
      const std::string how = strategy.value_or("no_shard");
      const std::array<std::string_view, 4> stages = {"no_shard", "optim", "optim_grads",
                                                      "optim_grads_params"};
      const auto found = std::find(stages.begin(), stages.end(), how);
      if (found == stages.end()) {
        s_.fault("data-parallel-sharding-strategy",
                 fmt::format("is {}; expected one of {}", quote(how), fmt::join(stages, ", ")));
      } else {
        put("plan.zero", found - stages.begin(),
            strategy ? "data-parallel-sharding-strategy" : "use-megatron-fsdp");
      }
    } else if (stage && (*stage > 0 || !distributed)) {
      put("plan.zero", *stage, "zero-stage");
      if (*stage == 0 && s_.has("deepspeed") && s_.has("bf16")) {
        plan_.assumed.push_back(
            "plan.zero: 0 as the file says; DeepSpeed's BF16_Optimizer divides optimiser state all the same "
            "(zero: 1)");
      }
    } else if (distributed) {
      put("plan.zero", 1, "use-distributed-optimizer");
    } else if (!dialect_.recipe) {
      plan_.put("plan.zero", "0", "no use of the distributed optimizer");
    }
    if (const auto norm = s_.number("clip-grad")) {
      plan_.put("plan.clip_gradients", *norm > 0 ? "true" : "false", s_.written("clip-grad"));
    }
  }

  // --recompute-modules in the words of plan.recompute.
  std::vector<std::string> dropped(const std::string& modules) {
    constexpr auto kGroups = std::to_array<std::pair<std::string_view, std::string_view>>({
        {"core_attn", "core_attention"},
        {"layernorm", "norms"},
        {"mlp_act", "activation_functions"},
        {"moe_act", "activation_functions"},
        {"mlp", "mlp"},
        {"moe", "experts"},
        {"shared_experts", "shared_expert"},
        {"mla_up_proj", "latents"},
    });
    std::vector<std::string> groups;
    std::string_view rest = modules;
    while (!rest.empty()) {
      const std::size_t begin = rest.find_first_not_of(" ,[]\"'");
      if (begin == std::string_view::npos) break;
      rest.remove_prefix(begin);
      const std::string_view module = rest.substr(0, rest.find_first_of(" ,[]\"'"));
      rest.remove_prefix(module.size());
      const auto found = std::find_if(kGroups.begin(), kGroups.end(),
                                      [&](const auto& entry) { return entry.first == module; });
      if (found == kGroups.end()) {
        plan_.left_out.push_back(fmt::format("{} {}: kept", s_.written("recompute-modules"), module));
      } else if (std::find(groups.begin(), groups.end(), found->second) == groups.end()) {
        groups.emplace_back(found->second);
      }
    }
    return groups;
  }

  void recompute() {
    const bool all = s_.on("checkpoint-activations");
    const bool selective = s_.on("recompute-activations");
    const auto granularity = s_.word("recompute-granularity");
    const auto method = s_.word("recompute-method");
    const auto count = s_.integer("recompute-num-layers", 0, 100'000);
    const auto modules = s_.word("recompute-modules");
    s_.use("checkpoint-num-layers");
    s_.use("distribute-saved-activations");
    s_.use("deepspeed-activation-checkpointing");
    if (all || granularity.value_or("") == "full") {
      const std::string source = s_.written(all ? "checkpoint-activations" : "recompute-granularity");
      const bool some = method.value_or("") == "block" && count;
      if (some && *count > 0) {
        plan_.put("plan.recompute", fmt::format("{{what: full, layers: {}}}", *count),
                  source + ", " + s_.written("recompute-num-layers"));
      } else {
        plan_.put("plan.recompute", some ? "none" : "full", source);
      }
      if (!some && count.value_or(1) > 1) {
        plan_.left_out.push_back(fmt::format("{} {}: each layer's input is kept, not every {}th's",
                                             s_.written("recompute-num-layers"), *count, *count));
      }
    } else if (selective || granularity.value_or("") == "selective") {
      const std::vector<std::string> groups = dropped(modules.value_or("core_attn"));
      if (groups.empty()) return;
      const std::string source = s_.written(modules     ? "recompute-modules"
                                            : selective ? "recompute-activations"
                                                        : "recompute-granularity");
      plan_.put("plan.recompute",
                groups == std::vector<std::string>{"core_attention"}
                    ? "selective"
                    : fmt::format("[{}]", fmt::join(groups, ", ")),
                source);
    }
  }

  // Recipes of Transformer Engine.
  void fp8() {
    auto format = s_.word("fp8-format");
    // Older names; NeMo has them beside a switch.
    const bool switched_off = s_.has("fp8") && !s_.on("fp8");
    for (const auto& [flag, name] : {std::pair("fp8-e4m3", "e4m3"), std::pair("fp8-hybrid", "hybrid")}) {
      if (!switched_off && !format && s_.on(flag)) format = name;
    }
    const std::string recipe = s_.word("fp8-recipe").value_or("delayed");
    if (!format) return;
    if (*format != "e4m3" && *format != "hybrid") return s_.fault("fp8-format", "expected e4m3 or hybrid");
    const std::string source = s_.written(s_.has("fp8-format") ? "fp8-format" : "fp8-" + *format);
    if (recipe == "blockwise") {
      plan_.put("plan.fp8", "block", s_.written("fp8-recipe"));
      if (*format == "hybrid") plan_.left_out.push_back(source + ": gradients by blocks are E4M3");
    } else if (recipe == "delayed" || recipe == "tensorwise") {
      plan_.put("plan.fp8", "tensor", source);
      plan_.put("plan.fp8_format", *format, source);
    } else {
      plan_.left_out.push_back(
          fmt::format("{} {}: products run in the 16-bit type", s_.written("fp8-recipe"), recipe));
      return;
    }
    if (recipe == "delayed") {
      plan_.left_out.push_back(
          fmt::format("{}: scales follow from each matrix itself, not from those of earlier steps", source));
    }
    if (s_.has("num-experts")) {
      plan_.left_out.push_back(fmt::format("{}: experts' products run in the 16-bit type", source));
    }
  }

  void precision() {
    const bool bf16 = s_.on("bf16"), fp16 = s_.on("fp16");
    const bool in_fp32 = s_.on("accumulate-allreduce-grads-in-fp32") || s_.on("grad-reduce-in-fp32");
    const bool in_bf16 = s_.on("grad-reduce-in-bf16");
    if (!bf16 && !fp16 && dialect_.recipe) {
      if (in_fp32) plan_.put("plan.gradient_type", "fp32", s_.written("grad-reduce-in-fp32"));
      return;
    }
    plan_.put("plan.precision",
              bf16   ? "bf16"
              : fp16 ? "fp16"
                     : "fp32",
              bf16   ? s_.written("bf16")
              : fp16 ? s_.written("fp16")
                     : "neither bf16 nor fp16");
    // bf16 is accumulated and reduced in fp32 unless told otherwise, fp16 only if told so.
    const bool narrow = bf16 ? in_bf16 : fp16 && !in_fp32;
    const std::string_view flag = in_bf16 ? "grad-reduce-in-bf16" : "accumulate-allreduce-grads-in-fp32";
    plan_.put("plan.gradient_type",
              !narrow ? "fp32"
              : bf16  ? "bf16"
                      : "fp16",
              s_.has(flag) ? s_.written(flag)
                           : fmt::format("goes with {}", bf16   ? "bf16"
                                                         : fp16 ? "fp16"
                                                                : "fp32"));
  }

  void overlap() {
    const auto reduce = s_.boolean("overlap-grad-reduce"), gather = s_.boolean("overlap-param-gather");
    s_.use("overlap-param-gather-with-optimizer-step");
    s_.use("align-grad-reduce");
    s_.use("align-param-gather");
    s_.use("no-align-*");
    if (reduce || !dialect_.recipe) {
      plan_.put("plan.overlap.gradient_reduce", reduce.value_or(false) ? "true" : "false",
                reduce ? s_.written("overlap-grad-reduce") : "not asked for");
    }
    if (gather || !dialect_.recipe) {
      plan_.put("plan.overlap.parameter_gather", gather.value_or(false) ? "true" : "false",
                gather ? s_.written("overlap-param-gather") : "not asked for");
    }
    const auto bucket = s_.integer("ddp-bucket-size", 0, std::int64_t{1} << 45);
    const auto megabytes = s_.integer("bucket-cap-mb", 1, std::int64_t{1} << 20);
    const ImportedKey* type = plan_.find("plan.gradient_type");
    const std::int64_t width = type == nullptr || type->value == "fp32" ? 4 : 2;
    if (bucket && *bucket > 0) {
      plan_.put("plan.bucket", exact_bytes(std::max<std::int64_t>(*bucket * width, 1024)),
                fmt::format("{}: {} gradients of {} bytes", s_.written("ddp-bucket-size"), *bucket, width));
    } else if (megabytes) {
      plan_.put("plan.bucket", fmt::format("{}MiB", *megabytes), s_.written("bucket-cap-mb"));
    } else if (!dialect_.recipe) {
      plan_.assumed.push_back(
          reduce.value_or(false)
              ? "plan.bucket: one per layer; Megatron-LM's have max(40M, dp × 1M) gradients"
              : "plan.bucket: one per layer; without overlap Megatron-LM has one for all gradients");
    }
  }

  void graphs_and_kernels() {
    const bool graphs =
        s_.on("cuda-graph") || (s_.has("cuda-graph-impl") && s_.word("cuda-graph-impl") != "none");
    s_.use("cuda-graph-*");
    if (graphs)
      plan_.put("plan.cuda_graphs", "true",
                s_.written(s_.has("cuda-graph") ? "cuda-graph" : "cuda-graph-impl"));
    plan_.put("plan.kernel_set", "megatron", "Megatron-LM's fusions");
    if (const FrameworkSetting* multicast = s_.find("env.NCCL-NVLS-ENABLE"); multicast != nullptr) {
      s_.use("env.NCCL-NVLS-ENABLE");
      if (multicast->value == "0") plan_.put("profile.nvls", "false", "NCCL_NVLS_ENABLE=0");
    }
    s_.use("env.*");
  }

  FrameworkSettings& s_;
  const FrameworkImportOptions& options_;
  const MegatronDialect& dialect_;
  ImportedPlan& plan_;
};

}  // namespace

void map_megatron(FrameworkSettings& settings, const FrameworkImportOptions& options,
                  const MegatronDialect& dialect, ImportedPlan& plan) {
  MegatronPlan(settings, options, dialect, plan).map();
  map_megatron_model(settings, dialect, plan);
  // What Megatron-LM's own value is besides is not worth a line.
  for (const auto& [flag, value] :
       std::to_array<std::pair<std::string_view, std::string_view>>({{"optimizer", "adam"},
                                                                     {"distributed-backend", "nccl"},
                                                                     {"attention-dropout", "0.0"},
                                                                     {"attention-dropout", "0"}})) {
    const FrameworkSetting* setting = settings.find(flag);
    if (setting != nullptr && setting->value == value) settings.use(flag);
  }
  sort_rest(settings, kMegatronLeftOut, kMegatronNoEffect, plan);
  if (!settings.has("attention-dropout") && !dialect.recipe) {
    plan.left_out.push_back("attention-dropout, 0.1 unless said otherwise: attention has no dropout");
  }
}

}  // namespace orrery

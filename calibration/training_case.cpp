#include "calibration/training_case.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::int64_t or_one(const Count& count) { return count.value_or(1); }

// Mechanisms that a Plan can't express: predicted without them a row would be right only by luck.
std::string unsupported(const TrainingRow& row) {
  if (row.experts.value_or(0) > 0) return "experts";
  if (or_one(row.cp) > 1) return "context parallelism";
  if (or_one(row.vpp) > 1 || contains(row.schedule, "interleaved")) return "interleaved schedule";
  if (row.zero_stage.value_or(0) >= 2) return "ZeRO-2, ZeRO-3 or FSDP";
  if (row.schedule == "DualPipe") return "DualPipe schedule";
  if (contains(row.notes, "LoRA")) return "LoRA";
  if (contains(row.notes, "CPU offload")) return "CPU offload";
  if (contains(row.gpu, "+") || contains(row.gpu, "mixed")) return "mixed GPUs";
  return "";
}

std::string doubtful(const TrainingRow& row) {
  if (contains(row.notes, "FLAG")) return "flagged in the table: fails an arithmetic check";
  if (contains(row.notes, "not a run")) return "not a measured time";
  if (!row.step_s && !row.tokens_per_s_per_gpu && !row.tflops_per_gpu && !row.mfu)
    return "no time, throughput or TFLOP/s published";
  return "";
}

std::string missing_plan(const TrainingRow& row) {
  if (!row.gpus) return "gpus";
  if (!row.tp || !row.pp) return "tp or pp";
  if (!row.dp) return "dp";
  if (!row.global_batch) return "gbs";
  if (!row.microbatch) return "mbs";
  return "";
}

std::optional<DType> compute_type(const TrainingRow& row) {
  const std::string& text = row.precision;
  if (text == "FP16") return DType::kFp16;
  if (text == "BF16" || text == "bf16" || text == "amp_bf16" || text.starts_with("bf16,"))
    return DType::kBf16;
  return std::nullopt;
}

// Stages of equal depth; where the layers don't divide, embedding and head count as a layer each (as
// BigScience placed them) if that divides, or else the first stages have one more.
std::vector<std::int32_t> layers_per_stage(std::int64_t layers, std::int64_t stages,
                                           std::vector<std::string>& assumed) {
  if (stages <= 1 || layers % stages == 0) return {};
  const auto count = static_cast<std::size_t>(stages);
  if ((layers + 2) % stages == 0) {
    std::vector<std::int32_t> depth(count, static_cast<std::int32_t>((layers + 2) / stages));
    --depth.front();
    --depth.back();
    assumed.push_back("embedding and head placed as a layer each");
    return depth;
  }
  std::vector<std::int32_t> depth(count, static_cast<std::int32_t>(layers / stages));
  for (std::int64_t i = 0; i < layers % stages; ++i) ++depth[static_cast<std::size_t>(i)];
  assumed.push_back("first stages one layer deeper");
  return depth;
}

// Optimizer state "within 8 GPUs" of more is neither ZeRO-0 nor ZeRO-1 over all of them.
bool shards_within_subgroup(const TrainingRow& row) {
  for (const auto& [words, size] :
       {std::pair{"zero1 within 8 GPUs", 8}, std::pair{"zero1 within 4 ranks", 4}}) {
    if (contains(row.notes, words)) return row.dp.value_or(1) > size;
  }
  return false;
}

std::variant<Recompute, TrainingRefusal> recompute_of(const TrainingRow& row, TrainingCase& made) {
  const FrameworkHabits& habits = made.habits;
  if (row.recompute == "full") return Recompute::kFull;
  if (row.recompute == "none") return Recompute::kNone;
  if (row.recompute.empty()) {
    made.assumed.push_back(
        fmt::format("recompute {}: {}", habits.recompute_full ? "full" : "none", habits.name));
    return habits.recompute_full ? Recompute::kFull : Recompute::kNone;
  }
  if (row.framework.starts_with("llmq")) return TrainingRefusal{"recomputes chosen parts of a layer"};
  if (habits.flash_attention) {
    made.assumed.push_back("selective recompute: attention recomputes its scores anyway");
  } else {
    made.recompute_attention = true;
  }
  return Recompute::kNone;
}

std::string set_plan(const TrainingRow& row, DType compute, TrainingCase& made) {
  const std::variant<Recompute, TrainingRefusal> recompute = recompute_of(row, made);
  if (const auto* refusal = std::get_if<TrainingRefusal>(&recompute)) return refusal->reason;
  const FrameworkHabits& habits = made.habits;
  PlanShorthand& plan = made.plan;
  plan.tp = static_cast<std::int32_t>(*row.tp);
  plan.pp = static_cast<std::int32_t>(*row.pp);
  plan.dp = static_cast<std::int32_t>(*row.dp);
  plan.global_batch = *row.global_batch;
  plan.layers_per_stage = layers_per_stage(made.model.layers, *row.pp, made.assumed);
  Plan& settings = plan.settings;
  settings.recompute = std::get<Recompute>(recompute);
  settings.microbatch_size = *row.microbatch;
  settings.sequence = *row.sequence;
  settings.zero_stage = static_cast<std::int32_t>(row.zero_stage.value_or(habits.zero_stage));
  if (!row.zero_stage) made.assumed.push_back(fmt::format("ZeRO-{}: {}", settings.zero_stage, habits.name));
  settings.sequence_parallel =
      plan.tp > 1 && (row.seq_parallel == "y" || (row.seq_parallel.empty() && habits.sequence_parallel));
  settings.compute_dtype = compute;
  settings.gradient_dtype = habits.gradient_dtype;
  settings.overlap_gradient_reduce = habits.overlap_gradient_reduce;
  settings.overlap_parameter_gather = habits.overlap_parameter_gather;
  settings.kernel_set = habits.kernel_set;
  settings.cuda_graphs = habits.cuda_graphs;
  return "";
}

}  // namespace

std::variant<TrainingCase, TrainingRefusal> training_case(const TrainingRow& row) {
  for (const std::string& reason : {unsupported(row), doubtful(row)}) {
    if (!reason.empty()) return TrainingRefusal{reason};
  }
  const std::optional<DType> compute = compute_type(row);
  if (!compute) return TrainingRefusal{row.precision.empty() ? "precision not published" : "FP8 or FP4"};
  TrainingCase made;
  const std::optional<FrameworkHabits> habits = framework_habits(row);
  if (!habits) return TrainingRefusal{"software whose kernels aren't known"};
  made.habits = *habits;
  if (const std::string field = missing_plan(row); !field.empty())
    return TrainingRefusal{field + " not published"};
  if (*row.tp * *row.pp * *row.dp != *row.gpus) return TrainingRefusal{"degrees don't multiply to the GPUs"};
  if (shards_within_subgroup(row))
    return TrainingRefusal{"optimizer state split within a part of the replicas"};

  const auto model = training_model(row, made.assumed);
  if (const auto* refusal = std::get_if<TrainingRefusal>(&model)) return *refusal;
  made.model = std::get<TransformerConfig>(model);
  const auto cluster = training_cluster(row, made.assumed);
  if (const auto* refusal = std::get_if<TrainingRefusal>(&cluster)) return *refusal;
  made.cluster = std::get<Cluster>(cluster);
  if (contains(row.notes, "packed")) made.assumed.push_back("packed samples attend as one sequence");
  if (const std::string reason = set_plan(row, *compute, made); !reason.empty())
    return TrainingRefusal{reason};
  return made;
}

}  // namespace orrery

#include "calibration/training_row.hpp"

#include <array>
#include <cmath>
#include <string_view>

#include "base/csv.hpp"
#include "base/error.hpp"

namespace orrery {
namespace {

Count count_of(const CsvRecord& record, std::string_view column) {
  const std::optional<double> value = record.number_if_given(column);
  if (!value) return std::nullopt;
  // Below 2^53 a double holds every integer.
  if (*value < 0 || *value != std::floor(*value) || *value > 0x1p53)
    fail(ErrorKind::kInput, "{}: {}: expected a whole number of 0 or more, got {}", record.place(), column,
         record[column]);
  return static_cast<std::int64_t>(*value);
}

std::optional<double> measure_of(const CsvRecord& record, std::string_view column) {
  const std::optional<double> value = record.number_if_given(column);
  if (value && *value <= 0)
    fail(ErrorKind::kInput, "{}: {}: expected a figure above 0, got {}", record.place(), column,
         record[column]);
  return value;
}

TrainingRow row_of(const CsvRecord& record) {
  TrainingRow row;
  row.place = record.place();
  row.id = record["id"];
  row.source = row.id.substr(0, row.id.rfind('-'));
  const auto text = [&](std::string& field, std::string_view column) { field = record[column]; };
  text(row.gpu, "gpu"), text(row.interconnect, "interconnect"), text(row.model, "model");
  text(row.schedule, "schedule"), text(row.seq_parallel, "seq_parallel"), text(row.recompute, "recompute");
  text(row.precision, "precision"), text(row.framework, "framework"), text(row.notes, "notes");
  const auto count = [&](Count& field, std::string_view column) { field = count_of(record, column); };
  count(row.gpus, "gpus"), count(row.gpus_per_node, "gpus_per_node");
  count(row.layers, "layers"), count(row.hidden, "hidden"), count(row.ffn, "ffn"), count(row.heads, "heads");
  count(row.kv_heads, "kv_heads"), count(row.vocab, "vocab"), count(row.experts, "experts");
  count(row.sequence, "seq"), count(row.global_batch, "gbs"), count(row.microbatch, "mbs");
  count(row.tp, "tp"), count(row.pp, "pp"), count(row.vpp, "vpp"), count(row.cp, "cp"), count(row.ep, "ep");
  count(row.dp, "dp"), count(row.zero_stage, "zero_stage");
  row.step_s = measure_of(record, "measured_step_s");
  row.tokens_per_s_per_gpu = measure_of(record, "tokens_per_s_per_gpu");
  row.tflops_per_gpu = measure_of(record, "tflops_per_gpu");
  row.mfu = measure_of(record, "mfu");
  return row;
}

// How sources turn a step time into TFLOP/s or MFU.
enum class Formula {
  kMegatronRecompute,  // 96·B·s·l·h²·(1 + s/6h + V/16lh), a second forward included (Narayanan et al. 2021,
                       // 3).
  kFullAttention,      // 6·N·tokens plus attention over all pairs.
  kCausalAttention,    // 6·N·tokens plus attention over the causal half.
  kUnknown
};

// By the beginning of the id's source, or of the framework's name.
struct NamedFormula {
  std::string_view name;
  Formula formula;
};
constexpr std::array<NamedFormula, 8> kBySource{{
    {"mosaic", Formula::kFullAttention},
    {"nemo", Formula::kFullAttention},
    {"dgxc", Formula::kFullAttention},
    {"gcp_recipes", Formula::kFullAttention},
    {"mbridge", Formula::kCausalAttention},
    {"automodel", Formula::kCausalAttention},
    {"moezoo", Formula::kCausalAttention},
    {"kwai", Formula::kCausalAttention},
}};
// Megatron's own papers and READMEs until 2022, and what others ran with that code.
constexpr std::array<NamedFormula, 5> kByFramework{{
    {"Megatron-LM 202", Formula::kMegatronRecompute},
    {"Megatron-LM Jan 2021", Formula::kMegatronRecompute},
    {"Megatron + DeepSpeed", Formula::kMegatronRecompute},
    {"Megatron-DeepSpeed", Formula::kMegatronRecompute},
    {"DeepSpeed ZeRO-3", Formula::kMegatronRecompute},
}};

Formula formula_of(const TrainingRow& row) {
  for (const NamedFormula& entry : kBySource) {
    if (row.source.starts_with(entry.name)) return entry.formula;
  }
  for (const NamedFormula& entry : kByFramework) {
    if (row.framework.starts_with(entry.name)) return entry.formula;
  }
  const bool internevo = row.framework == "InternEvo" && row.recompute == "full";
  return internevo ? Formula::kMegatronRecompute : Formula::kUnknown;
}

bool has_shape(const TrainingRow& row) {
  return row.layers && row.hidden && row.vocab && row.sequence && row.global_batch;
}

double of(const Count& count) { return static_cast<double>(*count); }

PublishedFlops megatron_recompute(const TrainingRow& row) {
  const double l = of(row.layers), h = of(row.hidden), s = of(row.sequence), v = of(row.vocab);
  const double flops = 96 * of(row.global_batch) * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  return {flops, "96·B·s·l·h²·(1 + s/6h + V/16lh), recomputation included"};
}

// Matrices of a layer and the head; three matrices where the feed-forward is gated, which its width tells:
// two of 4h and three of 8h/3 hold the same, so the name has to.
std::optional<PublishedFlops> six_n(const TrainingRow& row, bool causal) {
  if (!row.ffn || !row.heads || !row.kv_heads || *row.heads == 0) return std::nullopt;
  const double l = of(row.layers), h = of(row.hidden), s = of(row.sequence);
  const bool gated = row.model.find("GPT") == std::string::npos &&
                     row.model.find("MPT") == std::string::npos &&
                     row.model.find("Nemotron") == std::string::npos;
  const double attention = 2 * h * h + 2 * h * h * of(row.kv_heads) / of(row.heads);
  const double matrices = l * (attention + (gated ? 3 : 2) * h * of(row.ffn)) + h * of(row.vocab);
  const double tokens = of(row.global_batch) * s;
  // Scores and context: 2·2·s·h per token and layer forward, three times that with the backward pass.
  const double pairs = 12 * l * h * s * (causal ? 0.5 : 1.0);
  return PublishedFlops{tokens * (6 * matrices + pairs),
                        causal ? "6·N + attention over the causal half" : "6·N + attention over all pairs"};
}

}  // namespace

std::vector<TrainingRow> read_training_rows(const std::filesystem::path& file) {
  std::vector<TrainingRow> rows;
  for (const CsvRecord& record : read_csv(file.string()).records) rows.push_back(row_of(record));
  return rows;
}

std::optional<PublishedFlops> published_flops(const TrainingRow& row) {
  if (!has_shape(row)) return std::nullopt;
  switch (formula_of(row)) {
    case Formula::kMegatronRecompute: return megatron_recompute(row);
    case Formula::kFullAttention: return six_n(row, false);
    case Formula::kCausalAttention: return six_n(row, true);
    case Formula::kUnknown: break;
  }
  return std::nullopt;
}

std::optional<double> published_peak(const TrainingRow& row) {
  const bool eight_bit =
      row.precision.find("FP8") != std::string::npos || row.precision.find("fp8") != std::string::npos;
  if (row.gpu.starts_with("H100") || row.gpu.starts_with("H200") || row.gpu.starts_with("H800"))
    return eight_bit ? 1979e12 : 989e12;
  if ((row.gpu.starts_with("A100") || row.gpu.starts_with("A800")) && !eight_bit) return 312e12;
  if (row.gpu.starts_with("GB200")) return eight_bit ? 4900e12 : 2450e12;
  return std::nullopt;
}

std::optional<double> measured_step(const TrainingRow& row) {
  if (row.step_s) return row.step_s;
  if (!row.gpus || *row.gpus == 0) return std::nullopt;
  if (row.tokens_per_s_per_gpu && row.sequence && row.global_batch)
    return of(row.global_batch) * of(row.sequence) / (*row.tokens_per_s_per_gpu * of(row.gpus));
  const std::optional<PublishedFlops> step = published_flops(row);
  if (!step) return std::nullopt;
  if (row.tflops_per_gpu) return step->flops / (*row.tflops_per_gpu * 1e12 * of(row.gpus));
  const std::optional<double> peak = published_peak(row);
  if (row.mfu && peak) return step->flops / (*row.mfu * *peak * of(row.gpus));
  return std::nullopt;
}

}  // namespace orrery

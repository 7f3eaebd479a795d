#pragma once
// One published training run, as its table gives it. Nothing is guessed here: what wasn't published is
// absent.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

using Count = std::optional<std::int64_t>;

struct TrainingRow {
  std::string place;   // "training.csv:17"
  std::string id;      // "megatron-021"
  std::string source;  // The id without its number: "megatron".
  std::string gpu, interconnect, model, schedule, seq_parallel, recompute, precision, framework, notes;
  Count gpus, gpus_per_node;
  Count layers, hidden, ffn, heads, kv_heads, vocab, experts;
  Count sequence, global_batch, microbatch;
  Count tp, pp, vpp, cp, ep, dp, zero_stage;
  std::optional<double> step_s, tokens_per_s_per_gpu, tflops_per_gpu, mfu;
};

// THROWS Error(kInput) naming file and line: a column is missing, a value is no number.
std::vector<TrainingRow> read_training_rows(const std::filesystem::path& file);

// The arithmetic of one step as the source of a row counts it, and where the count comes from.
struct PublishedFlops {
  double flops = 0;
  std::string formula;
};

// Nothing where the source's formula is not known or the row lacks what it needs.
std::optional<PublishedFlops> published_flops(const TrainingRow& row);

// Dense peak that a source divides by for its MFU; nothing when it isn't known.
std::optional<double> published_peak(const TrainingRow& row);

// The measured time of one step in seconds: published, or else worked out from tokens per second, TFLOP/s or
// MFU, in this order, by the source's own formula. Nothing when the row measures something else (memory).
std::optional<double> measured_step(const TrainingRow& row);

}  // namespace orrery

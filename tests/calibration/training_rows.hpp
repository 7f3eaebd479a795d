#pragma once
// Rows of a training table, written by column.

#include <array>
#include <map>
#include <string>
#include <string_view>

namespace orrery::training_test {

inline constexpr std::array<std::string_view, 38> kColumns{"id",
                                                           "source",
                                                           "year",
                                                           "gpu",
                                                           "gpus",
                                                           "gpus_per_node",
                                                           "interconnect",
                                                           "model",
                                                           "params_b",
                                                           "layers",
                                                           "hidden",
                                                           "ffn",
                                                           "heads",
                                                           "kv_heads",
                                                           "vocab",
                                                           "experts",
                                                           "topk",
                                                           "seq",
                                                           "gbs",
                                                           "mbs",
                                                           "tp",
                                                           "pp",
                                                           "vpp",
                                                           "cp",
                                                           "ep",
                                                           "dp",
                                                           "zero_stage",
                                                           "schedule",
                                                           "seq_parallel",
                                                           "recompute",
                                                           "precision",
                                                           "framework",
                                                           "measured_step_s",
                                                           "tokens_per_s_per_gpu",
                                                           "tflops_per_gpu",
                                                           "mfu",
                                                           "memory_gb",
                                                           "notes"};

using Values = std::map<std::string, std::string>;

inline std::string header() {
  std::string line;
  for (const std::string_view column : kColumns) line += (line.empty() ? "" : ",") + std::string(column);
  return line + "\n";
}

// A small GPT on two GPUs of one node, invented; `changes` replace values.
inline std::string line(Values changes) {
  Values values = {{"id", "toy-001"},
                   {"gpu", "H100"},
                   {"gpus", "2"},
                   {"gpus_per_node", "8"},
                   {"model", "GPT toy"},
                   {"layers", "4"},
                   {"hidden", "1024"},
                   {"ffn", "4096"},
                   {"heads", "16"},
                   {"kv_heads", "16"},
                   {"vocab", "50257"},
                   {"seq", "1024"},
                   {"gbs", "8"},
                   {"mbs", "4"},
                   {"tp", "1"},
                   {"pp", "1"},
                   {"cp", "1"},
                   {"dp", "2"},
                   {"zero_stage", "1"},
                   {"recompute", "none"},
                   {"precision", "BF16"},
                   {"framework", "NeMo"},
                   {"measured_step_s", "0.05"}};
  for (auto& [column, value] : changes) values[column] = value;
  std::string text;
  for (const std::string_view column : kColumns) {
    if (column != kColumns.front()) text += ",";
    text += values[std::string(column)];
  }
  return text + "\n";
}

}  // namespace orrery::training_test

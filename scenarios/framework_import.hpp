#pragma once
// From the settings of a training framework to a scenario: which of its flags become which key, what had to
// be assumed, and what is left out because orrery doesn't have it. docs/user-guide/from-other-frameworks.md
// has the tables.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/framework_settings.hpp"

namespace orrery {

struct FrameworkImportOptions {
  std::string format = "auto";   // Or one of import_formats().
  FrameworkVariables variables;  // For what the file leaves to its environment.
  std::int64_t run = 0;          // Which of a script's runs, from 1; 0: the only one.
  std::int64_t gpus = 0;         // All of them; 0: what the file says, if it does.
  // Go into the scenario as they are; "" leaves them to the file (model) or to the reader (cluster).
  std::string model, cluster;
};

struct ImportedKey {
  std::string key;     // "plan.tp", "model.experts.count", "sequence".
  std::string value;   // As YAML.
  std::string source;  // "--tensor-model-parallel-size".
  bool operator==(const ImportedKey&) const = default;
};

struct ImportedPlan {
  std::string framework;  // "Megatron-LM".
  std::vector<ImportedKey> keys;
  std::vector<std::string> missing;  // What the scenario needs and the file doesn't say.
  std::vector<std::string> assumed;
  std::vector<std::string> left_out;   // Said by the file and not in orrery, with what happens instead.
  std::vector<std::string> unknown;    // Settings that the importer doesn't know.
  std::vector<std::string> no_effect;  // Settings that don't change a step's time or memory.

  void put(std::string key, std::string value, std::string source);
  const ImportedKey* find(std::string_view key) const;
};

// "megatron", "nemo", "torchtitan", "deepspeed".
const std::vector<std::string>& import_formats();

// THROWS Error(kInput): a framework that isn't known (by its name where the file gives it away), a file that
// can't be read, values that the file leaves open; kInfeasible: degrees that don't divide options.gpus.
ImportedPlan import_plan(std::string_view text, std::string_view place,
                         const FrameworkImportOptions& options = {});

// The scenario file, each key with its source in a comment, and everything else that was found as a comment.
std::string scenario_text(const ImportedPlan& plan, std::string_view place);

}  // namespace orrery

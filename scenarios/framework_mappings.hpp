#pragma once
// The steps of an import: files to settings, and settings of each framework to keys of a scenario.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "scenarios/framework_import.hpp"
#include "scenarios/framework_settings.hpp"
#include "scenarios/yaml.hpp"

namespace orrery {

// ---- Files to settings.

// Every scalar below the node by its path; ${…} is looked up in the whole file, then in the variables.
void read_yaml_settings(const YamlNode& root, const YamlNode& from, const FrameworkVariables& variables,
                        FrameworkSettings& settings);
// THROWS Error(kInput) where the text isn't what it should be.
void read_json_settings(std::string_view text, FrameworkSettings& settings);
void read_toml_settings(std::string_view text, FrameworkSettings& settings);
// The arguments of the one command of the script that has Megatron-LM's.
void read_megatron_script(std::string_view text, const FrameworkImportOptions& options,
                          FrameworkSettings& settings);

// ---- Settings to keys.

// Names are those of Megatron-LM's arguments. With `recipe` what isn't said comes from elsewhere, so that
// Megatron-LM's defaults are no help.
struct MegatronDialect {
  bool recipe = false;
};
void map_megatron(FrameworkSettings& settings, const FrameworkImportOptions& options,
                  const MegatronDialect& dialect, ImportedPlan& plan);
void map_megatron_model(FrameworkSettings& settings, const MegatronDialect& dialect, ImportedPlan& plan);
// NeMo's, Megatron-Bridge's and Primus' names become Megatron-LM's.
MegatronDialect rename_nemo(FrameworkSettings& settings, ImportedPlan& plan);
// Notes what NeMo has beside and doesn't change a step; before map_megatron.
void pass_over_nemo(FrameworkSettings& settings, ImportedPlan& plan);
void map_torchtitan(FrameworkSettings& settings, const FrameworkImportOptions& options, ImportedPlan& plan);
void map_torchtitan_model(FrameworkSettings& settings, ImportedPlan& plan);
void map_deepspeed(FrameworkSettings& settings, const FrameworkImportOptions& options, ImportedPlan& plan);

// ---- What they share.

// A setting that orrery has no counterpart for, and what that means. `flag` may end with '*'.
struct LeftOut {
  std::string_view flag, reason;
};

// Sorts what hasn't been asked for into left_out, no_effect and unknown. Switches that are off are none of
// them. With kStays those that are in neither table are left for a later call.
enum class Unlisted : std::uint8_t { kUnknown, kStays };
void sort_rest(FrameworkSettings& settings, std::span<const LeftOut> left_out,
               std::span<const std::string_view> no_effect, ImportedPlan& plan,
               Unlisted unlisted = Unlisted::kUnknown);

// What plan.dp follows from.
struct ParallelDegrees {
  std::int64_t tp = 1, cp = 1, pp = 1, ep = 1;
  std::int64_t model_parallel() const { return tp * cp * pp; }
};

// Writes plan.dp where the number of GPUs is known, and returns it. `file_gpus` is what the file says of them
// (0: nothing) and `source` where; a number that doesn't divide is noted and passed over there, since
// examples are often left at one node. THROWS Error(kInfeasible) if options.gpus don't divide.
std::optional<std::int64_t> put_data_parallel(const FrameworkImportOptions& options, std::int64_t file_gpus,
                                              const std::string& source, const ParallelDegrees& degrees,
                                              ImportedPlan& plan);

}  // namespace orrery

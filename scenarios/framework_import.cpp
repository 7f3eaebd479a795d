#include "scenarios/framework_import.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "scenarios/framework_mappings.hpp"

namespace orrery {
namespace {

enum class Syntax : std::uint8_t { kShell, kYaml, kJson, kToml };

// The first line that is neither empty nor a comment.
std::string_view first_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin != std::string_view::npos && line[begin] != '#') return line.substr(begin);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

// By the file's name, else by how it begins.
Syntax syntax_of(std::string_view text, std::string_view place) {
  const std::string extension = std::filesystem::path(place).extension().string();
  if (extension == ".json") return Syntax::kJson;
  if (extension == ".toml") return Syntax::kToml;
  if (extension == ".yaml" || extension == ".yml") return Syntax::kYaml;
  for (const char* script : {".sh", ".bash", ".slurm", ".sbatch", ".sub"}) {
    if (extension == script) return Syntax::kShell;
  }
  const std::string_view line = first_line(text);
  if (text.starts_with("#!")) return Syntax::kShell;
  if (line.starts_with('{')) return Syntax::kJson;
  if (line.starts_with('[')) return Syntax::kToml;
  if (text.find("$(") != std::string_view::npos || text.find("=(") != std::string_view::npos ||
      text.find("\nexport ") != std::string_view::npos) {
    return Syntax::kShell;
  }
  return line.find(':') != std::string_view::npos ? Syntax::kYaml : Syntax::kShell;
}

// Frameworks whose settings aren't read, by settings that give them away: all of them are there.
struct OtherFramework {
  std::string_view name;
  std::array<std::string_view, 2> telling;
};
constexpr auto kOthers = std::to_array<OtherFramework>({
    {"GPT-NeoX", {"pipe-parallel-size", "model-parallel-size"}},
    {"accelerate", {"distributed-type", "num-processes"}},
    {"Axolotl", {"base-model", "micro-batch-size"}},
    {"LLaMA-Factory", {"model-name-or-path", "per-device-train-batch-size"}},
    {"LLM Foundry", {"device-train-microbatch-size", "global-train-batch-size"}},
    {"MaxText", {"base-emb-dim", "base-num-decoder-layers"}},
    {"MaxText", {"per-device-batch-size", "remat-policy"}},
    {"nanotron", {"parallelism.dp", "parallelism.pp"}},
    {"Lingua", {"distributed.fsdp-type", "model.n-layers"}},
    {"Galvatron", {"pp-deg", "tp-sizes-enc"}},
    {"Levanter", {"trainer.train-batch-size", "model.hidden-dim"}},
    {"Transformer Engine's overlap (user buffers)", {"qkv-fprop.method", "fc1-fprop.method"}},
});

[[noreturn]] void refuse(const FrameworkSettings& settings, std::string_view expected) {
  for (const OtherFramework& other : kOthers) {
    if (!settings.has(other.telling[0]) || !settings.has(other.telling[1])) continue;
    fail(ErrorKind::kInput,
         "{}: looks like settings of {}, which can't be imported; write the plan by hand: "
         "docs/user-guide/from-other-frameworks.md",
         settings.place(), other.name);
  }
  fail(ErrorKind::kInput, "{}: has no {}; say what the file is with --format {}", settings.place(), expected,
       fmt::join(import_formats(), "|"));
}

bool any_of(const FrameworkSettings& settings, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return settings.has(name); });
}

// A value of the map that has arguments for keys: at the top or one below.
const YamlNode* arguments_map(const YamlNode& root) {
  const auto has_arguments = [](const YamlNode& node) {
    return std::any_of(node.keys.begin(), node.keys.end(),
                       [](const std::string& key) { return key.starts_with("--"); });
  };
  if (has_arguments(root)) return &root;
  const auto found = std::find_if(root.children.begin(), root.children.end(), has_arguments);
  return found == root.children.end() ? nullptr : &*found;
}

const YamlNode* child(const YamlNode* node, std::string_view key) {
  return node == nullptr ? nullptr : node->find(key);
}

void add_environment(const YamlNode& root, FrameworkSettings& settings) {
  const YamlNode* variables = root.find("ENV_VARS");
  if (variables == nullptr || variables->kind != YamlNode::Kind::kMap) return;
  for (std::size_t i = 0; i < variables->children.size(); ++i) {
    FrameworkSetting setting;
    setting.name = "env." + canonical_name(variables->keys[i]);
    setting.written = "ENV_VARS." + variables->keys[i];
    setting.value = variables->children[i].text;
    settings.add(std::move(setting));
  }
}

std::vector<std::string_view> degree_names() {
  return {"tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size",
          "global-batch-size"};
}

void import_yaml(std::string_view text, const FrameworkImportOptions& options, FrameworkSettings& settings,
                 ImportedPlan& plan) {
  const YamlNode root = parse_yaml(text, settings.place());
  if (const YamlNode* arguments = arguments_map(root); arguments != nullptr && options.format != "nemo") {
    plan.framework = "Megatron-LM";
    read_yaml_settings(root, *arguments, options.variables, settings);
    add_environment(root, settings);
    return map_megatron(settings, options, {}, plan);
  }
  const YamlNode* trainer = child(child(&root, "modules"), "pre_trainer");
  const YamlNode* overrides = child(trainer, "overrides");
  FrameworkSettings whole(settings.place());
  read_yaml_settings(root, root, options.variables, whole);
  if (overrides != nullptr) {
    plan.framework = "Primus";
    read_yaml_settings(root, *overrides, options.variables, settings);
  } else {
    settings = whole;
    plan.framework = root.find("distributed_strategy") != nullptr ? "NeuronX Distributed"
                     : root.find("trainer") != nullptr            ? "NeMo"
                     : root.find("train") != nullptr              ? "Megatron-Bridge"
                                                                  : "Megatron-LM";
  }
  const MegatronDialect dialect = rename_nemo(settings, plan);
  const std::vector<std::string_view> names = degree_names();
  const bool known =
      std::any_of(names.begin(), names.end(), [&](std::string_view name) { return settings.has(name); });
  const bool other = std::any_of(kOthers.begin(), kOthers.end(), [&](const OtherFramework& entry) {
    return whole.has(entry.telling[0]) && whole.has(entry.telling[1]);
  });
  if (!known || (other && options.format == "auto")) {
    refuse(
        whole,
        "settings of Megatron-LM, NeMo or Megatron-Bridge (tensor_model_parallel_size, micro_batch_size, …)");
  }
  if (dialect.recipe) {
    plan.assumed.push_back(
        "what the file doesn't say comes from a recipe elsewhere; here it has orrery's defaults");
  }
  pass_over_nemo(settings, plan);
  map_megatron(settings, options, dialect, plan);
}

void import_json(std::string_view text, const FrameworkImportOptions& options, FrameworkSettings& settings,
                 ImportedPlan& plan) {
  plan.framework = "DeepSpeed";
  read_json_settings(text, settings);
  if (!any_of(settings, {"zero-optimization.stage", "train-batch-size", "train-micro-batch-size-per-gpu",
                         "gradient-accumulation-steps"})) {
    refuse(settings, "settings of DeepSpeed (zero_optimization, train_batch_size, …)");
  }
  map_deepspeed(settings, options, plan);
}

void import_toml(std::string_view text, const FrameworkImportOptions& options, FrameworkSettings& settings,
                 ImportedPlan& plan) {
  plan.framework = "torchtitan";
  read_toml_settings(text, settings);
  if (!any_of(settings,
              {"training.local-batch-size", "training.batch-size", "training.seq-len", "model.flavor"})) {
    refuse(settings, "settings of torchtitan ([training], [parallelism], …)");
  }
  map_torchtitan(settings, options, plan);
}

// What the caller gives himself.
void take_given(const FrameworkImportOptions& options, ImportedPlan& plan) {
  const auto begins = [](std::string_view text, std::string_view key) { return text.starts_with(key); };
  if (!options.model.empty()) {
    std::erase_if(plan.keys, [&](const ImportedKey& key) { return begins(key.key, "model."); });
    std::erase_if(plan.missing, [&](const std::string& text) { return begins(text, "model"); });
    std::string path = "\"";
    for (const char c : options.model)
      path += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    plan.keys.insert(plan.keys.begin(), {"model", path + "\"", "--model"});
  }
  if (!options.cluster.empty()) plan.put("cluster", options.cluster, "--node and --nodes");
  if (options.cluster.empty()) plan.missing.push_back("cluster: which machines (--node and --nodes)");
  if (plan.find("sequence") == nullptr &&
      std::none_of(plan.missing.begin(), plan.missing.end(),
                   [&](const auto& text) { return begins(text, "sequence"); })) {
    plan.missing.push_back("sequence: the file doesn't say it");
  }
  if (plan.find("global_batch") == nullptr &&
      std::none_of(plan.missing.begin(), plan.missing.end(),
                   [&](const auto& text) { return begins(text, "global_batch"); })) {
    plan.missing.push_back("global_batch: the file doesn't say it");
  }
}

bool is_off(const FrameworkSetting& setting) {
  for (const char* off : {"false", "False", "none", "None", "0", "[]"}) {
    if (setting.value == off) return true;
  }
  return false;
}

}  // namespace

void ImportedPlan::put(std::string key, std::string value, std::string source) {
  keys.push_back({std::move(key), std::move(value), std::move(source)});
}

const ImportedKey* ImportedPlan::find(std::string_view key) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const ImportedKey& entry) { return entry.key == key; });
  return found == keys.end() ? nullptr : &*found;
}

const std::vector<std::string>& import_formats() {
  static const std::vector<std::string> kFormats = {"megatron", "nemo", "torchtitan", "deepspeed"};
  return kFormats;
}

void sort_rest(FrameworkSettings& settings, std::span<const LeftOut> left_out,
               std::span<const std::string_view> no_effect, ImportedPlan& plan, Unlisted unlisted) {
  std::vector<std::string> asked;
  for (const FrameworkSetting& setting : settings.all()) {
    if (setting.used) continue;
    const auto missing = std::find_if(left_out.begin(), left_out.end(), [&](const LeftOut& entry) {
      return name_matches(entry.flag, setting.name);
    });
    const bool idle = std::any_of(no_effect.begin(), no_effect.end(), [&](std::string_view pattern) {
      return name_matches(pattern, setting.name);
    });
    if (missing != left_out.end()) {
      if (!is_off(setting)) {
        plan.left_out.push_back(fmt::format("{}{}: {}", setting.written,
                                            setting.value.empty() ? "" : " " + show_unknown(setting.value),
                                            missing->reason));
      }
    } else if (idle) {
      plan.no_effect.push_back(setting.written);
    } else if (unlisted == Unlisted::kStays) {
      continue;
    } else {
      plan.unknown.push_back(setting.written +
                             (setting.value.empty() ? "" : " " + show_unknown(setting.value)));
    }
    asked.push_back(setting.name);
  }
  for (const std::string& name : asked) settings.use(name);
}

std::optional<std::int64_t> put_data_parallel(const FrameworkImportOptions& options, std::int64_t file_gpus,
                                              const std::string& source, const ParallelDegrees& degrees,
                                              ImportedPlan& plan) {
  const std::int64_t gpus = options.gpus > 0 ? options.gpus : file_gpus;
  if (gpus == 0) return std::nullopt;
  const std::int64_t model_parallel = degrees.model_parallel();
  const std::string text = degrees.cp > 1
                               ? fmt::format("tp {} × cp {} × pp {}", degrees.tp, degrees.cp, degrees.pp)
                               : fmt::format("tp {} × pp {}", degrees.tp, degrees.pp);
  const bool divides = gpus % model_parallel == 0;
  const std::int64_t dp = gpus / model_parallel;
  if (!divides && options.gpus > 0) {
    fail(ErrorKind::kInfeasible,
         "--gpus {}: {} = {} doesn't divide it; the file's plan needs a multiple of {}", options.gpus, text,
         model_parallel, model_parallel);
  }
  const bool experts_fit = divides && dp * degrees.cp % degrees.ep == 0;
  if (!divides || (!experts_fit && options.gpus == 0)) {
    plan.assumed.push_back(fmt::format("plan.dp: what the cluster leaves; {} ({}) don't go with {}{}", gpus,
                                       source, text, divides ? fmt::format(" and ep {}", degrees.ep) : ""));
    return std::nullopt;
  }
  plan.put("plan.dp", std::to_string(dp),
           fmt::format("{} / ({})", options.gpus > 0 ? fmt::format("{} GPUs", gpus) : source, text));
  return dp;
}

ImportedPlan import_plan(std::string_view text, std::string_view place,
                         const FrameworkImportOptions& options) {
  if (text.size() > (std::size_t{1} << 20))
    fail(ErrorKind::kInput, "{}: larger than 1 MiB; no settings file", place);
  if (text.find('\0') != std::string_view::npos) fail(ErrorKind::kInput, "{}: isn't text", place);
  const std::string& format = options.format;
  if (format != "auto" &&
      std::find(import_formats().begin(), import_formats().end(), format) == import_formats().end()) {
    fail(ErrorKind::kUsage, "--format {}: expected auto or one of {}{}", format,
         fmt::join(import_formats(), ", "), did_you_mean(format, import_formats()));
  }
  Syntax syntax = syntax_of(text, place);
  if (format == "torchtitan") syntax = Syntax::kToml;
  if (format == "deepspeed") syntax = Syntax::kJson;
  if (format == "nemo") syntax = Syntax::kYaml;
  if (format == "megatron" && syntax != Syntax::kYaml) syntax = Syntax::kShell;

  ImportedPlan plan;
  FrameworkSettings settings{std::string(place)};
  switch (syntax) {
    case Syntax::kShell:
      plan.framework = "Megatron-LM";
      read_megatron_script(text, options, settings);
      map_megatron(settings, options, {}, plan);
      break;
    case Syntax::kYaml: import_yaml(text, options, settings, plan); break;
    case Syntax::kJson: import_json(text, options, settings, plan); break;
    case Syntax::kToml: import_toml(text, options, settings, plan); break;
  }
  settings.throw_if_any();
  plan.assumed.insert(plan.assumed.end(), settings.notes().begin(), settings.notes().end());
  take_given(options, plan);
  return plan;
}

}  // namespace orrery

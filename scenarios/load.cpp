#include <algorithm>
#include <fstream>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "scenarios/sections.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxSequence = std::int64_t{1} << 24;
constexpr std::int64_t kMaxBatch = 1'000'000;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    fail(ErrorKind::kInput, "{}: is a folder; expected a scenario file", file.string());
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    const bool there = std::filesystem::exists(file, ignored);
    fail(ErrorKind::kInput, "{}: {}", file.string(),
         there ? "can't be opened; check its permissions" : "no such file");
  }
  // One byte more than the limit tells a large file from one that just fits; endless ones end here too.
  std::string text(kMaxFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) fail(ErrorKind::kInput, "{}: can't be read", file.string());
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

// What holds between the model and what is asked of it.
void check_together(const Section& file, const Scenario& scenario) {
  const TransformerConfig& model = scenario.model;
  const std::int64_t sequence = scenario.plan.settings.sequence;
  if (model.positions == PositionKind::kLearned && model.max_positions > 0 &&
      sequence > model.max_positions) {
    file.fault("sequence", fmt::format("is {}; the model has learned positions for {} tokens only", sequence,
                                       model.max_positions));
  }
  const DType compute = scenario.plan.settings.compute_dtype;
  const GpuType& gpu = scenario.cluster.node.gpu;
  if (gpu.peak(compute) <= 0) {
    file.fault("plan",
               fmt::format("precision is {}, in which {} has no peak rate", to_string(compute), gpu.name));
  }
  const auto check_rank = [&](std::string_view key, RankId rank) {
    if (rank.value >= scenario.cluster.gpu_count()) {
      file.fault(key, fmt::format("rank {} doesn't exist; the cluster's ranks are 0 to {}", rank.value,
                                  scenario.cluster.gpu_count() - 1));
    }
  };
  for (const auto& [rank, slowdown] : scenario.stragglers) check_rank("stragglers", rank);
  for (const Fault& fault : scenario.faults) {
    check_rank("faults", fault.rank);
    check_rank("faults", fault.peer);
  }
}

// The rotary kind stretches; say so rather than refuse.
void note_long_sequence(Scenario& scenario) {
  const TransformerConfig& model = scenario.model;
  const std::int64_t sequence = scenario.plan.settings.sequence;
  if (model.positions == PositionKind::kRope && model.max_positions > 0 && sequence > model.max_positions) {
    scenario.notes.push_back(
        fmt::format("sequence {} is longer than the model's {} positions", sequence, model.max_positions));
  }
}

// What comes from another file says so where it is wrong.
void set_origin(YamlNode& node, const std::string& origin) {
  node.origin = origin;
  for (YamlNode& inner : node.children) set_origin(inner, origin);
}

// A plan file names its scenario and holds the plan that takes the place of the scenario's.
struct PlanFile {
  std::filesystem::path scenario;
  YamlNode plan;
};
std::optional<PlanFile> plan_file(const YamlNode& root, const std::filesystem::path& file) {
  const YamlNode* const scenario = root.find("scenario");
  if (scenario == nullptr) return std::nullopt;
  for (const std::string& key : root.keys) {
    if (key == "scenario" || key == "plan" || key == "description") continue;
    fail(ErrorKind::kInput, "{}: {}: isn't of a plan file, which has scenario, plan and description",
         file.string(), key);
  }
  const YamlNode* const plan = root.find("plan");
  if (scenario->kind != YamlNode::Kind::kScalar || plan == nullptr) {
    fail(ErrorKind::kInput, "{}: a plan file has scenario: FILE and plan: {{…}}", file.string());
  }
  PlanFile read = {file.parent_path() / scenario->text, *plan};
  set_origin(read.plan, file.string());
  return read;
}

Scenario read_scenario(YamlNode root, const std::filesystem::path& file, const Overrides& overrides) {
  for (const std::string& override_text : overrides) apply_override(root, override_text);

  Faults faults(file);
  Scenario scenario;
  scenario.file = file;
  scenario.name = file.stem().string();
  const Section top(root, "", "scenario", faults);
  if (root.kind != YamlNode::Kind::kMap) faults.throw_if_any();

  std::string description;  // For the file's readers only.
  top.text("name", scenario.name);
  top.text("description", description);
  if (top.require("sequence", "tokens per sequence, e.g. 8192")) {
    top.integer("sequence", scenario.plan.settings.sequence, 1, kMaxSequence);
  }
  if (top.require("global_batch", "sequences per step, e.g. 128")) {
    top.integer("global_batch", scenario.plan.global_batch, 1, kMaxBatch);
  }
  read_model(top, scenario);
  read_cluster(top, scenario);
  read_plan(top, scenario);
  read_engine(top, scenario);
  read_stragglers(top, scenario);
  read_faults(top, scenario);
  read_random_faults(top, scenario);
  read_remap(top, scenario);
  read_training(top, scenario);
  scenario.profile = default_profile(scenario.cluster.node.gpu);
  read_profile(top, scenario);
  read_partition(top, scenario);
  read_traffic(top, scenario);
  read_collectives(top, scenario);
  read_prices(top, scenario);
  read_output(top, scenario);
  faults.throw_if_any();

  check_together(top, scenario);
  faults.throw_if_any();
  note_long_sequence(scenario);
  return scenario;
}

}  // namespace

Scenario parse_scenario(std::string_view yaml, const std::filesystem::path& file,
                        const Overrides& overrides) {
  return read_scenario(parse_yaml(yaml, file.string()), file, overrides);
}

Scenario load_scenario(const std::filesystem::path& file, const Overrides& overrides) {
  YamlNode root = parse_yaml(read_text(file), file.string());
  const std::optional<PlanFile> planned = plan_file(root, file);
  if (!planned) return read_scenario(std::move(root), file, overrides);
  YamlNode base = parse_yaml(read_text(planned->scenario), planned->scenario.string());
  const auto known = std::find(base.keys.begin(), base.keys.end(), "plan");
  if (base.kind != YamlNode::Kind::kMap || known == base.keys.end()) {
    fail(ErrorKind::kInput, "{}: is named by {} as its scenario, and has no plan to replace",
         planned->scenario.string(), file.string());
  }
  base.children[static_cast<std::size_t>(known - base.keys.begin())] = planned->plan;
  return read_scenario(std::move(base), planned->scenario, overrides);
}

}  // namespace orrery

#include "report/remap_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kListedFaults = 8;
constexpr std::size_t kListedPauses = 6;

std::string seconds(double s) { return format_time(from_seconds(s)); }

std::string step(const std::optional<double>& step_s, const char* otherwise) {
  return step_s ? seconds(*step_s) : otherwise;
}

std::string describe(const Fault& fault) {
  std::string text = fmt::format("{} of rank {}", to_string(fault.what), fault.rank.value);
  if (fault.peer.valid()) text += fmt::format(" to rank {}", fault.peer.value);
  text += fault.factor == 0 ? " lost" : fmt::format(" at {:g} of its rate", fault.factor);
  text += fmt::format(" from {}", format_time(fault.from));
  return text + (fault.until ? fmt::format(" to {}", format_time(*fault.until)) : "");
}

std::string fault_lines(const Scenario& scenario) {
  std::string text;
  for (std::size_t f = 0; f < std::min(scenario.faults.size(), kListedFaults); ++f)
    text += "  " + describe(scenario.faults[f]) + "\n";
  if (scenario.faults.size() > kListedFaults)
    text += fmt::format("  and {} more\n", scenario.faults.size() - kListedFaults);
  return text;
}

double sequences_per_s(const RemapRun& run) {
  return run.total_s > 0 ? static_cast<double>(run.sequences) / run.total_s : 0;
}

std::string line(const RemapRun& run, bool something_returns) {
  const std::string returned = !something_returns ? "-" : run.hang ? "never" : step(run.returned_s, "-");
  return fmt::format("  {:<10}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>8}{:>11}{:>10.2f}\n",
                     to_string(run.policy), seconds(run.before_s), step(run.during_s, "hangs"),
                     step(run.after_s, "hangs"), returned, seconds(run.pause_s()), seconds(run.lost_s()),
                     run.steps, seconds(run.total_s), sequences_per_s(run));
}

std::string mapping_text(const RemapStretch& stretch) {
  std::string text =
      fmt::format("{} replicas on {} GPUs, batch {}", stretch.replicas, stretch.gpus, stretch.global_batch);
  if (stretch.relayed > 0) text += fmt::format(", {} GPUs through others' network cards", stretch.relayed);
  return text;
}

std::string pause_line(const RemapPause& pause, const RemapStretch& next) {
  std::string text = fmt::format("    {}: {} | {} to notice, {} to rebuild, {} to lower, {} to move state",
                                 seconds(pause.at.seconds()), pause.reason, seconds(pause.detect_s),
                                 seconds(pause.rebuild_s), seconds(pause.lower_s), seconds(pause.move_s));
  if (pause.lost_s > 0) text += fmt::format("; {} of work redone", seconds(pause.lost_s));
  if (pause.lost_steps > 0) text += fmt::format(" ({} steps, to the checkpoint)", pause.lost_steps);
  return text + fmt::format("\n      then {}\n", mapping_text(next));
}

std::string story(const RemapRun& run) {
  std::string text;
  const std::size_t listed = std::min(run.pauses.size(), kListedPauses);
  for (std::size_t p = 0; p < listed; ++p) text += pause_line(run.pauses[p], run.stretches[p + 1]);
  if (run.pauses.size() > listed) text += fmt::format("    and {} more\n", run.pauses.size() - listed);
  if (!run.refused.empty()) text += fmt::format("    {}\n", run.refused);
  if (run.hang) text += fmt::format("    {}\n", to_text(*run.hang));
  if (text.empty()) text = "    changes nothing\n";
  return fmt::format("  {}\n{}", to_string(run.policy), text);
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json fault_json(const Fault& fault) {
  Json json = {{"what", to_string(fault.what)},
               {"rank", fault.rank.value},
               {"factor", fault.factor},
               {"from_s", fault.from.seconds()},
               {"until_s", fault.until ? Json(fault.until->seconds()) : Json(nullptr)}};
  if (fault.peer.valid()) json["peer"] = fault.peer.value;
  return json;
}

Json hang_json(const Hang& hang) {
  return {{"step", hang.step},
          {"rank", hang.rank.value},
          {"instruction", hang.instruction},
          {"since_s", hang.since.seconds()},
          {"until_s", hang.until.seconds()},
          {"waits_for_rank", hang.culprit.valid() ? Json(hang.culprit.value) : Json(nullptr)},
          {"waits_for_instruction",
           hang.culprit_instruction.empty() ? Json(nullptr) : Json(hang.culprit_instruction)}};
}

Json pause_json(const RemapPause& pause) {
  return {{"at_s", pause.at.seconds()},   {"reason", pause.reason},        {"detect_s", pause.detect_s},
          {"rebuild_s", pause.rebuild_s}, {"lower_s", pause.lower_s},      {"move_s", pause.move_s},
          {"lost_s", pause.lost_s},       {"lost_steps", pause.lost_steps}};
}

Json stretch_json(const RemapStretch& stretch) {
  return {{"from_s", stretch.from.seconds()},
          {"until_s", stretch.until.seconds()},
          {"steps", stretch.steps},
          {"gpus", stretch.gpus},
          {"replicas", stretch.replicas},
          {"relayed_gpus", stretch.relayed},
          {"global_batch", stretch.global_batch}};
}

Json run_json(const RemapRun& run) {
  Json pauses = Json::array(), stretches = Json::array();
  for (const RemapPause& pause : run.pauses) pauses.push_back(pause_json(pause));
  for (const RemapStretch& stretch : run.stretches) stretches.push_back(stretch_json(stretch));
  return {{"policy", to_string(run.policy)},
          {"before_s", run.before_s},
          {"during_s", optional_json(run.during_s)},
          {"after_s", optional_json(run.after_s)},
          {"returned_s", optional_json(run.returned_s)},
          {"steps", run.steps},
          {"sequences", run.sequences},
          {"total_s", run.total_s},
          {"pause_s", run.pause_s()},
          {"lost_s", run.lost_s()},
          {"sequences_per_s", sequences_per_s(run)},
          {"hang", run.hang ? hang_json(*run.hang) : Json(nullptr)},
          {"refused", run.refused.empty() ? Json(nullptr) : Json(run.refused)},
          {"pauses", std::move(pauses)},
          {"stretches", std::move(stretches)}};
}

}  // namespace

std::string to_table(const std::vector<RemapRun>& runs, const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  std::string text =
      fmt::format("{}: {} on {} x {} ({}), {} steps\n", scenario.name, scenario.model.name,
                  cluster.gpu_count(), cluster.node.gpu.name, cluster.node.name, scenario.remap.steps);
  text += fault_lines(scenario);
  text += fmt::format("\n  {:<10}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>8}{:>11}{:>10}\n", "", "step", "step",
                      "step", "step", "", "work", "steps", "", "sequences");
  text += fmt::format("  {:<10}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>8}{:>11}{:>10}\n", "policy", "before",
                      "during", "after", "returned", "pauses", "redone", "done", "total", "per s");
  const bool returns =
      std::ranges::any_of(scenario.faults, [](const Fault& fault) { return fault.until.has_value(); });
  for (const RemapRun& run : runs) text += line(run, returns);
  text += "\n";
  for (const RemapRun& run : runs) text += story(run);
  text +=
      "\n  before: steady step without faults. during: with the first one felt, mapped as before. after:\n"
      "  with it, mapped as the policy does. returned: at the end of the run. total: until the last step,\n"
      "  or until the watchdog ends the job.\n";
  return text;
}

std::string to_json(const std::vector<RemapRun>& runs, const Scenario& scenario) {
  Json policies = Json::array(), faults = Json::array();
  for (const RemapRun& run : runs) policies.push_back(run_json(run));
  for (const Fault& fault : scenario.faults) faults.push_back(fault_json(fault));
  const Json json = {{"scenario", scenario.name},     {"engine", scenario.engine},
                     {"steps", scenario.remap.steps}, {"watchdog_s", scenario.watchdog.seconds()},
                     {"faults", std::move(faults)},   {"policies", std::move(policies)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace orrery

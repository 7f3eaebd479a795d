#include <fmt/format.h>

#include <algorithm>

#include "base/units.hpp"
#include "report/summary.hpp"

namespace orrery {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kLines = 24;
constexpr std::size_t kListedStages = 7;
constexpr std::size_t kListedRemarks = 3;

// At most `width` characters (not bytes) of the text, which then ends in "...".
std::string shortened(const std::string& text, std::size_t width) {
  std::size_t characters = 0;
  std::size_t cut = text.size();  // Where the dots would go.
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins =
        (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U;  // UTF-8: no continuation byte.
    if (!begins) continue;
    if (characters == width - 3) cut = i;
    ++characters;
  }
  return characters <= width ? text : text.substr(0, cut) + "...";
}

void add_line(std::string& table, const std::string& line) { table += shortened(line, kColumns) + "\n"; }

void add_title(std::string& table, const Summary& summary, const Scenario& scenario) {
  const Cluster& cluster = scenario.cluster;
  const std::string& where = cluster.name.empty() ? cluster.node.name : cluster.name;
  std::string title = fmt::format("{}: {} on {} x {}", scenario.name, scenario.model.name,
                                  format_count(summary.gpus), cluster.node.gpu.name);
  if (!where.empty()) title += fmt::format(" ({})", where);
  add_line(table, title);
  add_line(table, summary.plan);
}

bool has_interval(const Summary& summary) { return summary.step_time_high_s > 0; }

void add_figures(std::string& table, const Summary& summary, const Scenario& scenario) {
  const auto row = [&](std::string_view left, const std::string& left_value, std::string_view right,
                       const std::string& right_value) {
    add_line(table, fmt::format("  {:<18}{:>16}      {:<20}{:>16}", left, left_value, right, right_value));
  };
  const auto cost = summary.cost_per_million_tokens > 0
                        ? fmt::format("{:.4g} {}", summary.cost_per_million_tokens, scenario.prices.currency)
                        : std::string("no price");
  const std::string settled = summary.settled ? "" : " (unsettled)";
  row("step time", format_time(from_seconds(summary.step_time_s)) + settled, "tokens/s per GPU",
      fmt::format("{:.1f}", summary.tokens_per_s_per_gpu));
  const bool small = summary.tflops_per_gpu < 0.1;
  row("one step alone", format_time(from_seconds(summary.makespan_s)),
      small ? "GFLOP/s per GPU" : "TFLOP/s per GPU",
      fmt::format("{:.1f}", summary.tflops_per_gpu * (small ? 1000 : 1)));
  row("MFU", fmt::format("{:.2f} %", 100 * summary.mfu), "per million tokens", cost);
  if (!has_interval(summary)) return;
  add_line(table, fmt::format("  {:<18}{:>16} to {}", "90 % interval",
                              format_time(from_seconds(summary.step_time_low_s)),
                              format_time(from_seconds(summary.step_time_high_s))));
}

// "180.2 ms, 121.0 ms, 120.1 ms; 61.0 ms lost": against the pace of the shortest.
void add_steps_under_faults(std::string& table, const Summary& summary) {
  constexpr std::size_t kShown = 4;
  const std::vector<double>& steps = summary.step_times_s;
  std::string text;
  for (std::size_t i = 0; i < std::min(steps.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + format_time(from_seconds(steps[i]));
  if (steps.size() > kShown) text += fmt::format(", … ({} in all)", steps.size());
  const double shortest_s = std::ranges::min(steps);
  double more_s = 0;
  for (const double step_s : steps) more_s += step_s - shortest_s;
  add_line(table, fmt::format("  steps with faults   {}; {} lost", text, format_time(from_seconds(more_s))));
}

// Where a rank's thread does its own communication, compute that spans a transfer stood still meanwhile.
std::string overlap_remark(const Summary& summary, const Profile& profile) {
  if (summary.communication_fraction <= 0) return "";
  if (profile.communication_on_core)
    return fmt::format("   ({:.1f} % of the communication interrupts it)", 100 * summary.overlap_ratio);
  return fmt::format("   (hides {:.1f} % of the communication)", 100 * summary.overlap_ratio);
}

void add_time_shares(std::string& table, const Summary& summary, const Profile& profile) {
  const auto row = [&](std::string_view name, double fraction, std::string_view remark) {
    add_line(table,
             fmt::format("  {:<24}{:>12}{:>10.2f} %{}", name,
                         format_time(from_seconds(fraction * summary.step_time_s)), 100 * fraction, remark));
  };
  const auto percent = [&](double seconds) { return 100 * seconds / summary.step_time_s; };
  double waiting = 0;
  for (const auto& [purpose, seconds] : summary.exposed_waiting_s) waiting += seconds;
  std::string kinds;
  for (const auto& [purpose, seconds] : summary.exposed_s) {
    kinds += fmt::format("{}{} {:.2f} %", kinds.empty() ? "" : ", ", to_string(purpose), percent(seconds));
  }
  add_line(table, "  where the step goes, averaged over ranks");
  row("compute", summary.compute_fraction, overlap_remark(summary, profile));
  row("exposed communication", summary.exposed_comm_fraction,
      waiting > 0 ? fmt::format("   ({:.2f} % is waiting for other ranks)", percent(waiting)) : "");
  if (!kinds.empty()) add_line(table, "    " + kinds);
  row("bubble", summary.bubble_fraction, "");
}

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / 0x1p30; }

std::string memory_row(const std::string& name, const PeakMemory& peak, std::int64_t capacity) {
  const auto of = [&](MemoryCategory category) {
    return peak.by_category[static_cast<std::size_t>(category)];
  };
  const std::string share =
      capacity > 0
          ? fmt::format("{:.1f} %", 100.0 * static_cast<double>(peak.bytes) / static_cast<double>(capacity))
          : "";
  const std::int64_t rest = of(MemoryCategory::kWorkspace) + of(MemoryCategory::kCommunication);
  return fmt::format("  {:<24}{:>9.2f}{:>9}{:>12.2f}{:>11.2f}{:>11.2f}{:>13.2f}{:>8.2f}", shortened(name, 23),
                     gib(peak.bytes), share, gib(of(MemoryCategory::kParameters)),
                     gib(of(MemoryCategory::kGradients)), gib(of(MemoryCategory::kOptimizer)),
                     gib(of(MemoryCategory::kActivations)), gib(rest));
}

// Every stage, or of more than a screen holds the fullest and the emptiest one.
std::vector<std::pair<std::string, std::size_t>> shown_stages(const Summary& summary,
                                                              const Program& program) {
  const std::vector<PeakMemory>& peaks = summary.peak_by_role;
  std::vector<std::pair<std::string, std::size_t>> shown;
  if (peaks.size() <= kListedStages) {
    for (std::size_t i = 0; i < peaks.size(); ++i) shown.emplace_back(program.roles[i].name, i);
    return shown;
  }
  const auto [least, most] = std::ranges::minmax_element(peaks, {}, &PeakMemory::bytes);
  const auto most_index = static_cast<std::size_t>(most - peaks.begin());
  const auto least_index = static_cast<std::size_t>(least - peaks.begin());
  shown.emplace_back(fmt::format("most: {}", program.roles[most_index].name), most_index);
  shown.emplace_back(fmt::format("least: {}", program.roles[least_index].name), least_index);
  return shown;
}

void add_memory(std::string& table, const Summary& summary, const Scenario& scenario,
                const Program& program) {
  const std::int64_t capacity = scenario.cluster.node.gpu.memory_bytes;
  const std::string of = capacity > 0 ? fmt::format(", of {:.1f}", gib(capacity)) : "";
  add_line(table, fmt::format("  {:<24}{:>9}{:>9}{:>12}{:>11}{:>11}{:>13}{:>8}", "memory in GiB" + of, "peak",
                              "", "parameters", "gradients", "optimizer", "activations", "other"));
  for (const auto& [name, role] : shown_stages(summary, program)) {
    add_line(table, memory_row(name, summary.peak_by_role[role], capacity));
  }
  if (summary.planned_role.valid()) {
    add_line(table, fmt::format("  memory plan of {}: {:.2f}, and no plan takes less than {:.2f}",
                                program.roles[summary.planned_role.index()].name,
                                gib(summary.planned_memory_bytes), gib(summary.memory_bound_bytes)));
  }
}

std::vector<std::string> remarks_of(const Summary& summary, const Scenario& scenario) {
  std::vector<std::string> remarks;
  for (const std::string& warning : summary.warnings) remarks.push_back("warning: " + warning);
  for (const std::string& note : scenario.notes) remarks.push_back("assumed: " + note);
  for (std::string& remark : remarks) std::ranges::replace(remark, '\n', ' ');
  if (remarks.size() <= kListedRemarks) return remarks;
  const std::size_t left_out = remarks.size() - (kListedRemarks - 1);
  remarks.resize(kListedRemarks - 1);
  remarks.push_back(fmt::format("and {} more; --json has all of them", left_out));
  return remarks;
}

// An empty line where the screen has room for it beside the lines to come.
void add_gap(std::string& table, std::size_t to_come) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(table, '\n'));
  if (to_come > 0 && lines + to_come < kLines) table += "\n";
}

}  // namespace

// Title 2, figures 3, interval 1, steps with faults 1, time 5, memory 9, remarks 3: kLines.
std::string to_table(const Summary& summary, const Scenario& scenario, const Program& program) {
  constexpr std::size_t kTimeLines = 5;
  const std::vector<std::string> remarks = remarks_of(summary, scenario);
  const std::size_t stages = shown_stages(summary, program).size();
  const std::size_t memory_lines = stages == 0 ? 0 : 2 + stages;
  std::string table;
  add_title(table, summary, scenario);
  add_figures(table, summary, scenario);
  if (!scenario.faults.empty() && !summary.step_times_s.empty()) add_steps_under_faults(table, summary);
  add_gap(table, kTimeLines + memory_lines + remarks.size());
  add_time_shares(table, summary, scenario.profile);
  add_gap(table, memory_lines + remarks.size());
  if (stages > 0) add_memory(table, summary, scenario, program);
  if (stages > 0) add_gap(table, remarks.size());
  for (const std::string& remark : remarks) add_line(table, "  " + remark);
  return table;
}

}  // namespace orrery

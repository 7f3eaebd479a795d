#include "report/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace orrery {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::vector<double>& values, std::size_t index) {
  return index < values.size() ? Json(values[index]) : Json(nullptr);
}

std::string bytes(std::int64_t count) { return format_bytes(static_cast<double>(count)); }

std::string kernel_rows(const std::vector<RunKernel>& kernels) {
  std::string text = fmt::format("\n  {:<38}{:>6}{:>12}{:>12}{:>12}{:>9}\n", "in a step", "times", "ms",
                                 "alone ms", "floor ms", "/floor");
  RunKernel all = {"all", 0, 0, 0, 0};
  const auto row = [&](const RunKernel& kernel) {
    text += fmt::format("  {:<38}{:>6}{:>12.3f}{:>12.3f}{:>12.3f}{:>9.3f}\n", kernel.label,
                        kernel.instructions, 1e-3 * kernel.step_us, 1e-3 * kernel.alone_us,
                        1e-3 * kernel.floor_us, kernel.floor_us > 0 ? kernel.step_us / kernel.floor_us : 0);
  };
  for (const RunKernel& kernel : kernels) {
    row(kernel);
    all.instructions += kernel.instructions;
    all.step_us += kernel.step_us, all.alone_us += kernel.alone_us, all.floor_us += kernel.floor_us;
  }
  row(all);
  return text + "\n";
}

std::string device_rows(const RunDevice& device) {
  std::string text = fmt::format("  {:<22}{}: {} in use, {} of it for libraries\n", "device", device.name,
                                 bytes(device.used_bytes), bytes(device.library_bytes));
  text += fmt::format("  {:<22}{} replayed as graphs, {} launched kernel by kernel\n", "steps",
                      device.graph_steps, device.plain_steps);
  if (device.registered_buffers > 0)
    text += fmt::format("  {:<22}{} buffers with NCCL\n", "registered", device.registered_buffers);
  if (!device.kernels.empty()) text += kernel_rows(device.kernels);
  if (!device.capture_failure.empty())
    text += fmt::format("  {:<22}{}\n", "no graph:", device.capture_failure);
  for (const std::string& warning : device.warnings) text += fmt::format("  {:<22}{}\n", "warning:", warning);
  return text;
}

}  // namespace

double RunSummary::step_time_s() const {
  if (step_s.empty()) return 0;
  std::vector<double> sorted = step_s;
  std::nth_element(sorted.begin(), sorted.begin() + std::ssize(sorted) / 2, sorted.end());
  return sorted[sorted.size() / 2];
}

std::string log_line(std::int64_t step, double loss, double gradient_norm, double learning_rate) {
  Json line = {{"step", step}, {"loss", loss}};
  line["grad_norm"] = gradient_norm < 0 ? Json(nullptr) : Json(gradient_norm);
  line["learning_rate"] = learning_rate;
  return line.dump() + "\n";
}

std::string to_table(const RunSummary& run, const Scenario& scenario) {
  std::string text =
      fmt::format("{}: {} steps on {} ({})\n\n", scenario.name, run.losses.size(), run.ranks, run.backend);
  text += fmt::format("  {:<22}{:.4f} to {:.4f}\n", "loss", run.losses.front(), run.losses.back());
  if (!run.gradient_norms.empty()) {
    text += fmt::format("  {:<22}{:.4f} to {:.4f}\n", "gradient norm", run.gradient_norms.front(),
                        run.gradient_norms.back());
  }
  if (!run.step_s.empty()) {
    const auto [least, most] = std::minmax_element(run.step_s.begin(), run.step_s.end());
    text += fmt::format("  {:<22}{} (median of {}; {} to {})\n", "step time",
                        format_time(from_seconds(run.step_time_s())), run.step_s.size(),
                        format_time(from_seconds(*least)), format_time(from_seconds(*most)));
    text += fmt::format("  {:<22}{:.0f}\n", "tokens/s", run.tokens_per_step / run.step_time_s());
  }
  text += fmt::format("  {:<22}{}, as planned; {} of scratch beside it\n", "peak memory",
                      bytes(run.peak_memory_bytes), bytes(run.workspace_bytes));
  if (!run.device.name.empty()) text += device_rows(run.device);
  text += fmt::format("  {:<22}{}\n", "parameters", run.parameter_hash);
  return text;
}

std::string to_json(const RunSummary& run, const Scenario& scenario) {
  Json json = {{"scenario", scenario.name},
               {"backend", run.backend},
               {"ranks", run.ranks},
               {"steps", run.losses.size()}};
  json["loss"] = run.losses;
  json["grad_norm"] = run.gradient_norms;
  json["final_loss"] = run.losses.empty() ? Json(nullptr) : Json(run.losses.back());
  json["final_grad_norm"] =
      run.gradient_norms.empty() ? Json(nullptr) : or_null(run.gradient_norms, run.gradient_norms.size() - 1);
  json["parameter_hash"] = run.parameter_hash;
  json["step_time_s"] = run.step_s.empty() ? Json(nullptr) : Json(run.step_time_s());
  json["step_times_s"] = run.step_s;
  json["tokens_per_step"] = run.tokens_per_step;
  json["peak_memory_bytes"] = run.peak_memory_bytes;
  json["predicted_memory_bytes"] = run.predicted_memory_bytes;
  json["workspace_bytes"] = run.workspace_bytes;
  json["plan_hash"] = run.plan_hash;
  json["program_hash"] = run.program_hash;
  if (!run.device.name.empty()) {
    json["device"] = {{"name", run.device.name},
                      {"libraries", run.device.libraries},
                      {"library_bytes", run.device.library_bytes},
                      {"used_bytes", run.device.used_bytes},
                      {"graph_steps", run.device.graph_steps},
                      {"plain_steps", run.device.plain_steps},
                      {"registered_buffers", run.device.registered_buffers}};
    if (!run.device.warnings.empty()) json["device"]["warnings"] = run.device.warnings;
    for (const RunKernel& kernel : run.device.kernels) {
      json["device"]["kernels"].push_back({{"label", kernel.label},
                                           {"instructions", kernel.instructions},
                                           {"step_us", kernel.step_us},
                                           {"alone_us", kernel.alone_us},
                                           {"floor_us", kernel.floor_us}});
    }
    if (!run.device.capture_failure.empty()) json["device"]["capture_failure"] = run.device.capture_failure;
  }
  return json.dump(2) + "\n";
}

}  // namespace orrery

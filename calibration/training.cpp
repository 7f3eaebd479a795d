#include "calibration/training.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <variant>

#include "base/error.hpp"
#include "calibration/training_case.hpp"
#include "calibration/training_kernels.hpp"
#include "planner/lower.hpp"
#include "simulator/engine.hpp"
#include "simulator/uncertainty.hpp"

namespace orrery {
namespace {

using Outcome = std::variant<ValidationRow, TrainingRefusal>;

constexpr const char* kFamily = "step";

struct Prediction {
  double step_s = 0;
  StepInterval interval;
};

Prediction simulate_case(const TrainingCase& row) {
  const Graph graph = build_training_graph(row.model, row.plan.settings.compute_dtype);
  const Plan plan = expand(row.plan, graph, row.cluster.gpu_count());
  const Program program = lower(graph, plan);
  Profile profile = default_profile(row.cluster.node.gpu);
  if (row.habits.launch_s > 0) profile.launch_s = row.habits.launch_s;
  Job job = make_job(program, row.cluster, profile, {});
  if (!row.habits.flash_attention) unfuse_attention(job, row, profile);
  const Timeline timeline = run_fast(job);
  return {timeline.step_time.seconds(), step_interval(job, row.cluster, profile, timeline)};
}

Outcome predict(const TrainingRow& row) {
  const std::variant<TrainingCase, TrainingRefusal> made = training_case(row);
  if (const auto* refusal = std::get_if<TrainingRefusal>(&made)) return *refusal;
  const std::optional<double> measured = measured_step(row);
  if (!measured) return TrainingRefusal{"step time can't be worked out from what is published"};
  try {
    const Prediction prediction = simulate_case(std::get<TrainingCase>(made));
    ValidationRow result;
    result.id = row.id;
    result.source = row.source;
    result.gpu = row.gpu;
    result.family = kFamily;
    result.measured_s = *measured;
    result.predicted_s = prediction.step_s;
    result.lower_s = prediction.interval.low_s;
    result.upper_s = prediction.interval.high_s;
    return result;
  } catch (const Error& error) {
    // Heads, layers or batch that the plan's degrees don't divide.
    if (error.kind() == ErrorKind::kInfeasible || error.kind() == ErrorKind::kInput)
      return TrainingRefusal{"the plan can't be laid out for this model"};
    throw;
  }
}

// Every row's outcome, in the rows' order whatever thread had it.
std::vector<Outcome> predict_all(const std::vector<TrainingRow>& rows, const TrainingOptions& options) {
  std::vector<Outcome> outcomes(rows.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::size_t i = next++; i < rows.size(); i = next++) {
      try {
        outcomes[i] = predict(rows[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = rows.size();
      }
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, rows.size());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.threads; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
  return outcomes;
}

}  // namespace

ValidationReport validate_training(const std::filesystem::path& file, const TrainingOptions& options) {
  const std::vector<TrainingRow> rows = read_training_rows(file);
  const std::vector<Outcome> outcomes = predict_all(rows, options);
  ValidationReport report;
  std::map<std::tuple<std::string, std::string, std::string>, std::int64_t> refused;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (const auto* row = std::get_if<ValidationRow>(&outcomes[i])) {
      report.rows.push_back(*row);
    } else {
      ++refused[{rows[i].source, rows[i].gpu, std::get<TrainingRefusal>(outcomes[i]).reason}];
    }
  }
  for (const auto& [key, count] : refused)
    report.refused.push_back({std::get<0>(key), std::get<1>(key), kFamily, std::get<2>(key), count});
  group_rows(report);
  return report;
}

}  // namespace orrery

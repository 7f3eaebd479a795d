#pragma once
// What a Timeline says about a run: the figures of the one-screen summary and of --json.

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "model/timeline.hpp"
#include "planner/memory.hpp"
#include "planner/plan.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

struct Summary {
  double step_time_s = 0;
  // 90 % of the probability lies between them (simulator/uncertainty.hpp); both 0: not worked out.
  double step_time_low_s = 0, step_time_high_s = 0;
  double makespan_s = 0;
  double tokens_per_s_per_gpu = 0;
  double tflops_per_gpu = 0;   // Model flops (recompute not counted).
  double mfu = 0;              // Over the dense peak of the compute type.
  double bubble_fraction = 0;  // Of the step, averaged over ranks: nothing runs and nothing moves.
  double exposed_comm_fraction = 0;
  std::vector<std::pair<Purpose, double>> exposed_s;          // By kind, averaged over ranks, longest first.
  std::vector<std::pair<Purpose, double>> exposed_waiting_s;  // The part spent waiting for other ranks.
  // Averaged over ranks: data moves in so much of the step, and this part of that lies under compute.
  double communication_fraction = 0, overlap_ratio = 0;
  double compute_fraction = 0;  // With bubble and exposed communication it makes 1; see report/metrics.hpp.
  std::int64_t peak_memory_bytes = 0;
  std::vector<PeakMemory> peak_by_role;
  // Of the role with the highest peak: what its memory plan takes, and what it can't take less than (safe
  // whatever the timing of streams; the peak is in issue order). planner/memory_plan.hpp.
  RoleId planned_role;
  std::int64_t planned_memory_bytes = 0, memory_bound_bytes = 0;
  double cost_per_million_tokens = 0;  // 0 without prices.
  std::int32_t gpus = 0;               // Of the plan, idle ones included: they are paid for.
  std::int64_t tokens = 0;             // Of one step.
  std::string plan;                    // "tp 8, pp 16, dp 128; …": the decisions in one line.
  std::int32_t steps = 1;              // Simulated until the period settled.
  // What each of them took, from the end of the one before; filled by add_step_times.
  std::vector<double> step_times_s;
  bool settled = true;
  std::int32_t rank_classes = 0;
  std::vector<std::string> warnings;
};

Summary summarize(const Scenario& scenario, const Graph& graph, const Plan& plan, const Program& program,
                  const Timeline& timeline);

// From when each simulated step ended (EngineCounters::step_ends). The last ones are the steady state after
// the last change.
void add_step_times(std::span<const SimTime> step_ends, Summary& summary);

// 6 · (active parameters that multiply activations) · tokens plus causal-half attention, forward and
// backward: three times the forward arithmetic of all matmuls with weights and of attention. The head counts,
// a tied table as the head; looking tokens up doesn't.
double model_flops(const Graph& graph, std::int64_t batch, std::int64_t sequence);

// One screen: at most 24 lines of at most 100 columns.
std::string to_table(const Summary& summary, const Scenario& scenario, const Program& program);
// One object; docs/user-guide has its keys. Keys are only ever added.
std::string to_json(const Summary& summary, const Scenario& scenario, const Program& program);

}  // namespace orrery

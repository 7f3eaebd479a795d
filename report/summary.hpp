#pragma once
// What a Timeline says about a run: the figures of the one-screen summary and of --json.

#include <cstdint>
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
  double makespan_s = 0;
  double tokens_per_s_per_gpu = 0;
  double tflops_per_gpu = 0;   // Model flops (recompute not counted).
  double mfu = 0;              // Over the dense peak of the compute type.
  double bubble_fraction = 0;  // Of the step, averaged over ranks: nothing runs and nothing moves.
  double exposed_comm_fraction = 0;
  std::vector<std::pair<Purpose, double>> exposed_s;  // By kind, averaged over ranks, longest first.
  std::int64_t peak_memory_bytes = 0;
  std::vector<PeakMemory> peak_by_role;
  double cost_per_million_tokens = 0;  // 0 without prices.
  std::int32_t gpus = 0;
};

Summary summarize(const Scenario& scenario, const Graph& graph, const Plan& plan, const Program& program,
                  const Timeline& timeline);

// 6 · (active parameters that multiply activations) · tokens plus causal-half attention, forward and
// backward.
double model_flops(const Graph& graph, std::int64_t batch, std::int64_t sequence);

std::string to_table(const Summary& summary, const Scenario& scenario, const Program& program);
std::string to_json(const Summary& summary, const Scenario& scenario, const Program& program);

}  // namespace orrery

#pragma once
// What `orrery run` tells of a run: a line per step as it goes, a table and JSON at its end.

#include <cstdint>
#include <string>
#include <vector>

#include "model/timeline.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

struct RunSummary {
  std::string backend = "host";
  std::string ranks;                   // "4 threads".
  std::vector<double> losses;          // By step.
  std::vector<double> gradient_norms;  // By step; empty: nobody asked for it.
  std::vector<double> step_s;          // Of the steps after the warm-up.
  std::string parameter_hash, plan_hash, program_hash;
  std::int64_t peak_memory_bytes = 0;  // Of the rank that has most: its arena.
  std::int64_t predicted_memory_bytes = 0;
  std::int64_t workspace_bytes = 0;
  double tokens_per_step = 0;

  double step_time_s() const;  // The median.
};

// One JSON object in a line: step, loss, grad_norm, lr.
std::string log_line(std::int64_t step, double loss, double gradient_norm, double learning_rate);

std::string to_table(const RunSummary& run, const Scenario& scenario);
// One object; docs/user-guide/running.md has its keys. Keys are only ever added.
std::string to_json(const RunSummary& run, const Scenario& scenario);

}  // namespace orrery

#pragma once
// What `orrery run` tells of a run: a line per step as it goes, a table and JSON at its end.

#include <cstdint>
#include <string>
#include <vector>

#include "model/timeline.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

// Instructions of one label in a step, what their kernels take alone, and what they need at least.
struct RunKernel {
  std::string label;
  std::int64_t instructions = 0;
  double step_us = 0, alone_us = 0, floor_us = 0;
};

// Of a run on GPUs.
struct RunDevice {
  std::string name;                    // "NVIDIA H200"; empty: a processor.
  std::vector<std::string> libraries;  // With version and place.
  std::int64_t library_bytes = 0;      // Workspaces of libraries and kernels, beside the memory plan.
  std::int64_t used_bytes = 0;         // What the device's memory had less of at the end.
  std::int64_t graph_steps = 0, plain_steps = 0;  // Replayed as graphs, and launched kernel by kernel.
  std::int64_t registered_buffers = 0;            // With the communication library, by group.
  std::string capture_failure;                    // Why not as graphs.
  std::vector<RunKernel> kernels;                 // Where they were timed: largest loss first.
  std::vector<std::string> warnings;              // What worked, but not as well as it could, and why.
};

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
  RunDevice device;

  double step_time_s() const;  // The median.
};

// One JSON object in a line: step, loss, grad_norm, lr.
std::string log_line(std::int64_t step, double loss, double gradient_norm, double learning_rate);

std::string to_table(const RunSummary& run, const Scenario& scenario);
// One object; docs/user-guide/running.md has its keys. Keys are only ever added.
std::string to_json(const RunSummary& run, const Scenario& scenario);

}  // namespace orrery

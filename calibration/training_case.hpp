#pragma once
// From a published row to something that can be simulated, or to the reason why it can't.

#include <string>
#include <variant>
#include <vector>

#include "calibration/training_framework.hpp"
#include "calibration/training_row.hpp"
#include "model/transformer.hpp"
#include "planner/plan.hpp"
#include "topology/cluster.hpp"

namespace orrery {

struct TrainingCase {
  TransformerConfig model;
  Cluster cluster;
  PlanShorthand plan;
  FrameworkHabits habits;
  bool recompute_attention = false;  // Korthikanti et al. 2022: the scores are made again in the backward.
  std::vector<std::string> assumed;  // What the row leaves open, and what was taken.
};

// A reason in few words, the same for all rows that share it, so that they can be counted.
struct TrainingRefusal {
  std::string reason;
};

std::variant<TrainingCase, TrainingRefusal> training_case(const TrainingRow& row);

// Its parts.
std::variant<TransformerConfig, TrainingRefusal> training_model(const TrainingRow& row,
                                                                std::vector<std::string>& assumed);
std::variant<Cluster, TrainingRefusal> training_cluster(const TrainingRow& row,
                                                        std::vector<std::string>& assumed);

}  // namespace orrery

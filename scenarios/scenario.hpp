#pragma once
// One YAML file that says everything about a simulation: model, sequence and batch, cluster, plan,
// engine, prices. docs/user-guide has the format, scenarios/scenario.schema.json its schema.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/transformer.hpp"
#include "planner/plan.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

struct Prices {
  double gpu_hour = 0;  // 0: not known.
  std::string currency = "USD";
  std::string source;
};

struct Scenario {
  std::string name;
  std::filesystem::path file;
  TransformerConfig model;
  PlanShorthand plan;
  Cluster cluster;
  Profile profile;
  Prices prices;
  std::string engine = "fast";
  bool fold = true;
  std::vector<std::pair<RankId, double>> stragglers;
  std::vector<std::string> notes;  // What reading assumed.
};

// Paths inside the file are relative to it. THROWS Error(kInput) with every message as
// "file:line:column: field: what is wrong; what was expected; did you mean …".
Scenario load_scenario(const std::filesystem::path& file);
Scenario parse_scenario(std::string_view yaml, const std::filesystem::path& file);

}  // namespace orrery

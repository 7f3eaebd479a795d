#pragma once
// A Scenario in words: what it comes to once everything short is written out.

#include <string>

#include "model/graph.hpp"
#include "planner/plan.hpp"
#include "scenarios/scenario.hpp"

namespace orrery {

// "64 x DGX-H100: 512 x H100-SXM5-80GB, rail-optimised, 32 nodes per leaf".
std::string describe(const Cluster& cluster);

// "8,030,261,248 parameters, 8 of 8 GPUs, TP 2 x PP 1 x DP 4, 128 x 8,192 tokens": one line.
std::string digest(const Scenario& scenario, const Graph& graph, const Plan& plan);

// Model, cluster and normal-form plan, equal replicas told once.
std::string normal_form(const Scenario& scenario, const Graph& graph, const Plan& plan);

}  // namespace orrery

#pragma once
// The engine that a scenario asks for, or both.

#include <string>

#include "scenarios/scenario.hpp"
#include "simulator/engine.hpp"

namespace orrery {

struct EngineRun {
  Timeline timeline;
  EngineCounters counters;
  std::string remarks;  // Lines for the reader: how far both engines are apart, what the faults did.
  bool agree = true;    // False: they differ by more than rounding.
};

EngineRun run_engine(const Scenario& scenario, const Job& job);

}  // namespace orrery

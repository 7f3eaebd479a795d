#pragma once
// The engine that a scenario asks for, or both.

#include <string>

#include "scenarios/scenario.hpp"
#include "simulator/compare_engines.hpp"
#include "simulator/engine.hpp"

namespace orrery {

struct EngineRun {
  Timeline timeline;
  EngineCounters counters;
  std::string remarks;  // A line for the reader: how far both engines are apart.
  bool agree = true;    // False: they differ by more than the tolerance.
};

// THROWS HangError; Error(kDisagreement) when of both engines only one hangs, or elsewhere.
// `tolerance`: the largest difference of both engines, as a part of the step, that counts as agreement.
EngineRun run_engine(const Scenario& scenario, const Job& job, double tolerance = kEngineTolerance);

}  // namespace orrery

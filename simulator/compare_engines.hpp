#pragma once
// How far two engines' answers to one Job are apart.

#include <cstdint>
#include <string>

#include "model/timeline.hpp"

namespace orrery {

struct EngineDifference {
  SimTime largest;               // Over starts, rendezvous and ends, each from its Timeline's step_start on.
  std::int32_t rank_class = -1;  // Where the largest is; −1: there is none.
  std::int32_t instruction = -1;
  double relative = 0;       // `largest` over the step time.
  SimTime step_time;         // The difference of the step times,
  SimTime makespan;          // and of the isolated steps.
  double step_relative = 0;  // The larger of the two, relative.

  bool within(double tolerance) const { return relative <= tolerance && step_relative <= tolerance; }
};

// Two engines that agree to rounding. Measured over random jobs: 3e-7 where they take some 100 us, as each
// shared transfer rounds by a picosecond; 3e-12 for training steps.
inline constexpr double kEngineTolerance = 1e-6;

// REQUIRES: both are of the same Job.
EngineDifference compare_engines(const Timeline& a, const Timeline& b);

// "largest difference 17 ps (1.9e-12 of a step) at 'f.l3.m0' of rank 0".
std::string to_text(const EngineDifference& difference, const Program& program, const Timeline& timeline);

}  // namespace orrery

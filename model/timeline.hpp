#pragma once
// What happened: predicted by the simulator or measured by the executor, in one form. Everything a
// report says (step time, MFU, exposed communication, bubble) is a function of a Timeline.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/sim_time.hpp"
#include "model/program.hpp"

namespace orrery {

// Ranks that did the same things at the same times. One class per rank in an unfolded run.
struct RankClass {
  RoleId role;
  std::vector<RankId> ranks;  // Ascending; the first one represents the class.
};

// One run of instructions first … last of one stream (predictions have first = last).
struct Span {
  std::int32_t rank_class = 0;
  StreamId stream;
  std::int32_t first = 0;
  std::int32_t last = 0;
  SimTime start;
  SimTime ready;  // Until here it only waited for other ranks (rendezvous); = start for compute.
  SimTime end;
  bool operator==(const Span&) const = default;
};

struct Timeline {
  std::vector<RankClass> classes;
  std::vector<Span> spans;  // Of the last simulated step, ordered by class, then instruction.
  SimTime step_start;       // When the last step began: the end of the one before, on the slowest rank.
  SimTime makespan;         // Of one isolated step.
  SimTime step_time;        // Steady-state period of the endless loop.
  std::int32_t steps = 1;   // Simulated until the period settled.
  bool settled = true;      // False: successive periods still differed after `steps` steps.
};

// "f0 0us..10us" per span, in order; with several classes of one role the class's first rank is added.
std::string to_text(const Program& program, const Timeline& timeline);

}  // namespace orrery

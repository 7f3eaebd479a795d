#pragma once
// A run that stands still because something it needs is lost: who waits for whom, and until when.

#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/ids.hpp"
#include "base/sim_time.hpp"
#include "simulator/job.hpp"

namespace orrery {

struct Hang {
  std::int32_t step = 0;  // In which it hangs, from 0.
  // The first of those that wait, where, and since when.
  RankId rank;
  std::string instruction;
  SimTime since;
  SimTime until;  // The watchdog ends the job.
  // For whom: the rank that stands still, or, where all are there and nothing moves, the rank whose link
  // does.
  RankId culprit;
  std::string culprit_instruction;  // Where that rank is; empty: nothing moves.
  std::vector<Fault> lost;          // What is at standstill then.
  std::vector<SimTime> step_ends;   // Of the steps before.
};

// "hangs in step 3 at 'grad.l5' of rank 0, which waits since 14.2 s for rank 8 …": one sentence.
std::string to_text(const Hang& hang);

// Thrown by the engines in place of a Timeline, which needs a step that has ended.
class HangError : public Error {
 public:
  explicit HangError(Hang hang);
  const Hang& hang() const { return hang_; }

 private:
  Hang hang_;
};

}  // namespace orrery

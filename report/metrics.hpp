#pragma once
// Where the time of a step goes, as functions of a Program and a Timeline: the same for predicted and
// measured ones.
//
// The loop's steps overlap: a first stage begins the next step while the last one still works on this one. In
// the steady state every span returns each `step_time`, so the spans of the recorded step, folded modulo
// step_time, are exactly what a rank does during any window of that length; all times below are over
// [step_start, step_start + step_time). Where step_time equals the makespan (one isolated step) nothing
// folds.
//
// At each moment a rank computes, or else its communication is exposed, or else it is in the bubble:
//   compute   a compute instruction runs;
//   exposed   none does, and a transfer is under way, or a collective among ranks of one role waits for the
//   last
//             one of them (a straggler, a busy link);
//   bubble    the rest: nothing to do, or only a wait for other roles, i.e. other stages: a send or receive
//   for its
//             peer, or a collective across roles (the gradient norm's, say) for the stages that end later.

#include <array>
#include <vector>

#include "base/interval_set.hpp"
#include "model/program.hpp"
#include "model/timeline.hpp"

namespace orrery {

// Adds [start, end), folded into the window that begins at `window` and lasts `period`.
void add_folded(std::vector<Interval>& intervals, SimTime start, SimTime end, SimTime window, SimTime period);

template <class T>
using ByPurpose = std::array<T, kPurposeCount>;

// What a rank of one class has in progress, folded.
struct Activity {
  IntervalSet compute;
  ByPurpose<IntervalSet> moving;   // From ready to end: sends, receives, collectives, copies.
  ByPurpose<IntervalSet> waiting;  // From start to ready: collectives among ranks of one role only.
};

// By rank class. A span over several instructions counts as what its first one is.
std::vector<Activity> activities(const Program& program, const Timeline& timeline);

// Seconds of one step, averaged over the ranks of all classes; compute + exposed + bubble = step.
struct StepShares {
  double step_s = 0;
  double compute_s = 0;
  double bubble_s = 0;
  // A moment at which several purposes are exposed counts for the first of them in the order of Purpose,
  // which is that of how directly they hold up the compute: tensor parallel before pipeline before gradient
  // reduction.
  ByPurpose<double> moving_s{};   // Exposed while data moves.
  ByPurpose<double> waiting_s{};  // Exposed while waiting for other ranks.
  double communication_s = 0;     // Data moves for some purpose, exposed or not.

  double exposed_s(Purpose purpose) const {
    return moving_s[static_cast<std::size_t>(purpose)] + waiting_s[static_cast<std::size_t>(purpose)];
  }
  double exposed_s() const;
  // Part of the time in which data moves that lies under compute; 0 where none moves.
  double overlap() const;
  // Part of the step; 0 for a step that takes no time.
  double fraction(double seconds) const { return step_s > 0 ? seconds / step_s : 0; }
};

StepShares step_shares(const Program& program, const Timeline& timeline);

}  // namespace orrery

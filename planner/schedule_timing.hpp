#pragma once
// How long a schedule takes and what it holds, from the times of its stages alone: for choosing schedules by
// the thousand. A pass starts when its rank is free and what it waits for is there, one latency later where
// that comes from another rank; messages don't queue and have no size. The simulator says what happens on a
// machine.

#include <vector>

#include "planner/pipeline_schedule.hpp"

namespace orrery {

struct PassSpan {
  double start = 0;
  double end = 0;
};

struct ScheduleTiming {
  std::vector<std::vector<PassSpan>> spans;  // [rank][pass]; passes that overlap have one span.
  std::vector<double> rank_span;             // By rank: from its first start to its last end.
  double makespan = 0;                       // From 0 to the last end.
  double longest_span = 0;  // The step's period where ranks needn't wait for each other between
                            // steps (Qi et al. 2023); else the makespan is.
  double bubble_rate = 0;   // 1 − (mean busy time of a rank) / longest_span.
};

// Times with every virtual stage alike, from those of a rank's whole share of the model: chunks take their
// part. DualPipe's ranks hold two stages; there the times are of one of the two.
StageTimes even_times(const ScheduleShape& shape, double forward, double input, double weight,
                      double latency = 0);

// THROWS Error(kInfeasible) with the pass that each rank stops at when the order can't finish.
// REQUIRES: times for every virtual stage; passes in range (verify finds those that aren't).
ScheduleTiming time_schedule(const Schedule& schedule, const StageTimes& times);

// The largest number of chunk activations a rank holds, in units of a rank's share of the stages' activations
// (DualPipe: of one of its two stages). A forward holds one from its start to the end of its backward; where
// the backward is split, `weight_share` of it (what the weight part reads) stays from the end of the input
// part to the end of the weight part.
std::vector<double> peak_activations(const Schedule& schedule, double weight_share = 1.0);

// The same in bytes (or any unit) per virtual stage: what a forward keeps, and what of it a weight part
// needs.
std::vector<double> peak_memory(const Schedule& schedule, const std::vector<double>& kept_by_stage,
                                const std::vector<double>& needed_by_weight);

// [rank][chunk] → most micro-batches between the start of their forward and the end of their (last) backward.
std::vector<std::vector<std::int32_t>> most_in_flight(const Schedule& schedule);

// No order of passes on these ranks beats it: the first forward reaches each rank through the stages before
// it and its last gradient runs back through them (only the forwards, where backwards are split: weight parts
// may come last). For 1F1B's own order also: from the last stage's first backward on, each rank has m − 1
// more backwards and the forwards that its warm-up left.
double makespan_bound(const Schedule& schedule, const StageTimes& times);

}  // namespace orrery

#pragma once
// A predicted Timeline against a measured one of the same Program: where the time went differently.

#include <cstdint>
#include <string>
#include <vector>

#include "model/timeline_json.hpp"

namespace orrery {

// Seconds on both sides. Busy time of a span is what follows `ready`; before that it only waited for others.
struct ComparedTime {
  double predicted_s = 0, measured_s = 0;

  double difference_s() const { return predicted_s - measured_s; }
  // predicted / measured − 1; 0 where both are 0, infinite where only the measured one is.
  double error() const;
};

// All instructions of one label and purpose, over all ranks.
struct ComparedOp {
  std::string label, purpose, kind;  // A run of several instructions has "first … last" for a label.
  std::int64_t count = 0;            // Pairs that were compared.
  ComparedTime busy;
  ComparedTime waiting;
};

struct ComparedRank {
  std::int32_t rank = 0;
  std::string role;
  ComparedTime busy, waiting;
};

// Instructions that only one side has.
struct Unmatched {
  bool predicted = true;  // That side has it.
  std::string role, name;
  std::int64_t ranks = 0;  // How many of them.
};

struct TimelineComparison {
  ComparedTime step;
  std::vector<ComparedOp> ops;       // Largest difference of busy and waiting time first.
  std::vector<ComparedRank> ranks;   // Likewise.
  std::vector<Unmatched> unmatched;  // As they come in the files.
  std::vector<std::int32_t> only_predicted_ranks, only_measured_ranks;
  // Measured busy time that was compared instruction by instruction, and as runs of several, where the finer
  // side was summed: a run's time has the gaps between its instructions in it, a sum hasn't.
  double single_s = 0, run_s = 0;
};

// Spans are matched by rank, stream and name. THROWS Error(kInput) when the two are of different Programs, or
// a rank has another role in each.
TimelineComparison compare_timelines(const TimelineRecord& predicted, const TimelineRecord& measured);

// Whether the step times are further apart than `threshold`, a part of the measured one.
bool exceeds(const TimelineComparison& comparison, double threshold);

}  // namespace orrery

#pragma once
// In which order a stage does its forwards and backwards.

#include <cstdint>
#include <vector>

#include "planner/plan.hpp"

namespace orrery {

struct ScheduleItem {
  bool forward = true;
  std::int32_t microbatch = 0;
  bool operator==(const ScheduleItem&) const = default;
};

// One forward and one backward of every micro-batch, for stage `stage` of `stages`.
// 1F1B: min(stages − 1 − stage, m) forwards, then forward and backward in turn, then the remaining
// backwards; at most stages − stage micro-batches are in flight (Narayanan et al., SC'21).
std::vector<ScheduleItem> stage_order(ScheduleKind kind, std::int32_t stage, std::int32_t stages,
                                      std::int32_t microbatches);

}  // namespace orrery

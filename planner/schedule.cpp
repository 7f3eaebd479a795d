#include "planner/schedule.hpp"

#include <algorithm>
#include <cassert>

namespace orrery {
namespace {

std::vector<ScheduleItem> one_forward_one_backward(std::int32_t stage, std::int32_t stages,
                                                   std::int32_t microbatches) {
  const std::int32_t warm_up = std::min(stages - 1 - stage, microbatches);
  std::vector<ScheduleItem> order;
  order.reserve(2 * static_cast<std::size_t>(microbatches));
  for (std::int32_t m = 0; m < warm_up; ++m) order.push_back({true, m});
  for (std::int32_t m = warm_up; m < microbatches; ++m) {
    order.push_back({true, m});
    order.push_back({false, m - warm_up});
  }
  for (std::int32_t m = microbatches - warm_up; m < microbatches; ++m) order.push_back({false, m});
  return order;
}

}  // namespace

std::vector<ScheduleItem> stage_order(ScheduleKind kind, std::int32_t stage, std::int32_t stages,
                                      std::int32_t microbatches) {
  assert(stage >= 0 && stage < stages && microbatches > 0);
  switch (kind) {
    case ScheduleKind::kOneForwardOneBackward: return one_forward_one_backward(stage, stages, microbatches);
  }
  return {};
}

}  // namespace orrery

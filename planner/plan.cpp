#include "planner/plan.hpp"

namespace orrery {

std::string_view to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kOneForwardOneBackward: return "1f1b";
  }
  return "";
}

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kFull: return "full";
  }
  return "";
}

std::int32_t Plan::world_size() const {
  std::size_t ranks = idle.size();
  for (const PipelineReplica& replica : replicas) {
    for (const Stage& stage : replica.stages) ranks += stage.ranks.size();
  }
  return static_cast<std::int32_t>(ranks);
}

std::int64_t Plan::global_batch() const {
  std::int64_t microbatches = 0;
  for (const PipelineReplica& replica : replicas) microbatches += replica.microbatches;
  return microbatches * microbatch_size;
}

}  // namespace orrery

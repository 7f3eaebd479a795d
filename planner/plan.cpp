#include "planner/plan.hpp"

#include <algorithm>

namespace orrery {

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kFull: return "full";
    case Recompute::kTensors: return "tensors";
    case Recompute::kAuto: return "auto";
  }
  return "";
}

std::string_view to_string(GradientSum sum) { return sum == GradientSum::kOrdered ? "ordered" : "native"; }

std::string_view to_string(Fp8 fp8) {
  switch (fp8) {
    case Fp8::kNone: return "none";
    case Fp8::kTensor: return "tensor";
    case Fp8::kBlock: return "block";
  }
  return "";
}

std::string_view to_string(Fp8Format format) { return format == Fp8Format::kHybrid ? "hybrid" : "e4m3"; }

std::string_view to_string(Fp8FastSums sums) {
  switch (sums) {
    case Fp8FastSums::kNone: return "none";
    case Fp8FastSums::kForward: return "forward";
    case Fp8FastSums::kAll: return "all";
  }
  return "";
}

std::string_view to_string(ContextForm form) {
  switch (form) {
    case ContextForm::kAllGather: return "all_gather";
    case ContextForm::kRing: return "ring";
  }
  return "";
}

std::vector<const std::vector<RankId>*> pipeline_positions(const PipelineReplica& replica) {
  std::vector<const std::vector<RankId>*> positions;
  for (const Stage& stage : replica.stages) {
    const bool known = std::any_of(positions.begin(), positions.end(),
                                   [&](const auto* ranks) { return *ranks == stage.ranks; });
    if (!known) positions.push_back(&stage.ranks);
  }
  return positions;
}

ScheduleShape schedule_shape(const Plan& plan, const PipelineReplica& replica) {
  ScheduleShape shape;
  shape.kind = plan.schedule;
  shape.ranks = static_cast<std::int32_t>(pipeline_positions(replica).size());
  // The two directions of DualPipe share their virtual stages.
  if (plan.schedule != PipelineSchedule::kDualPipe && shape.ranks > 0) {
    shape.chunks = static_cast<std::int32_t>(std::ssize(replica.stages)) / shape.ranks;
  }
  shape.microbatches = static_cast<std::int32_t>(replica.microbatches);
  shape.group = plan.interleave_group;
  return with_defaults(shape);
}

std::int32_t Plan::tensor_parallel() const {
  return static_cast<std::int32_t>(std::ssize(replicas.front().stages.front().ranks)) / context_parallel;
}

std::int32_t Plan::expert_tensor_parallel() const {
  return expert_tensor > 0 ? expert_tensor : tensor_parallel();
}

std::int32_t Plan::world_size() const {
  std::size_t ranks = idle.size();
  for (const PipelineReplica& replica : replicas) {
    for (const auto* const position : pipeline_positions(replica)) ranks += position->size();
  }
  return static_cast<std::int32_t>(ranks);
}

std::int64_t Plan::global_batch() const {
  std::int64_t microbatches = 0;
  for (const PipelineReplica& replica : replicas) microbatches += replica.microbatches;
  return microbatches * microbatch_size;
}

}  // namespace orrery

#include "planner/pipeline_schedule.hpp"

#include <algorithm>
#include <array>
#include <cassert>

#include "planner/schedule_list.hpp"
#include "planner/schedule_orders.hpp"

namespace orrery {
namespace {

constexpr std::array kKinds = {PipelineSchedule::kGPipe,
                               PipelineSchedule::kOneForwardOneBackward,
                               PipelineSchedule::kEagerOneForwardOneBackward,
                               PipelineSchedule::kInterleaved,
                               PipelineSchedule::kLoopedBfs,
                               PipelineSchedule::kZeroBubbleH1,
                               PipelineSchedule::kZeroBubbleH2,
                               PipelineSchedule::kZeroBubbleV,
                               PipelineSchedule::kVHalf,
                               PipelineSchedule::kVMin,
                               PipelineSchedule::kDualPipe,
                               PipelineSchedule::kDualPipeV,
                               PipelineSchedule::kWave,
                               PipelineSchedule::kList};

ChunkPlacement placement_of(const ScheduleShape& shape) {
  switch (shape.kind) {
    case PipelineSchedule::kZeroBubbleV:
    case PipelineSchedule::kVHalf:
    case PipelineSchedule::kVMin:
    case PipelineSchedule::kDualPipeV:
    case PipelineSchedule::kWave: return ChunkPlacement::kZigzag;
    case PipelineSchedule::kList: return shape.placement;
    default: return ChunkPlacement::kLooped;
  }
}

// The neighbour `step` stages along the chain, if there is one.
std::optional<StagePlace> along(const Schedule& schedule, std::int32_t rank, const Pass& pass,
                                std::int32_t step) {
  const std::int32_t stage =
      schedule.stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.chunk)] + step;
  if (pass.kind == PassKind::kBackwardWeight || stage < 0 || stage >= schedule.stages()) return std::nullopt;
  return schedule.place_of(stage, pass.microbatch);
}

}  // namespace

std::string_view to_string(PipelineSchedule kind) {
  switch (kind) {
    case PipelineSchedule::kGPipe: return "gpipe";
    case PipelineSchedule::kOneForwardOneBackward: return "1f1b";
    case PipelineSchedule::kEagerOneForwardOneBackward: return "eager-1f1b";
    case PipelineSchedule::kInterleaved: return "interleaved";
    case PipelineSchedule::kLoopedBfs: return "looped-bfs";
    case PipelineSchedule::kZeroBubbleH1: return "zb-h1";
    case PipelineSchedule::kZeroBubbleH2: return "zb-h2";
    case PipelineSchedule::kZeroBubbleV: return "zb-v";
    case PipelineSchedule::kVHalf: return "v-half";
    case PipelineSchedule::kVMin: return "v-min";
    case PipelineSchedule::kDualPipe: return "dualpipe";
    case PipelineSchedule::kDualPipeV: return "dualpipe-v";
    case PipelineSchedule::kWave: return "wave";
    case PipelineSchedule::kList: return "list";
  }
  return "";
}

std::optional<PipelineSchedule> pipeline_schedule_from(std::string_view name) {
  const auto* found = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](PipelineSchedule kind) { return to_string(kind) == name; });
  return found == kKinds.end() ? std::nullopt : std::optional(*found);
}

std::span<const PipelineSchedule> all_pipeline_schedules() { return kKinds; }

std::int32_t default_chunks(PipelineSchedule kind) {
  switch (kind) {
    case PipelineSchedule::kGPipe:
    case PipelineSchedule::kOneForwardOneBackward:
    case PipelineSchedule::kEagerOneForwardOneBackward:
    case PipelineSchedule::kZeroBubbleH1:
    case PipelineSchedule::kZeroBubbleH2:
    case PipelineSchedule::kList: return 1;
    default: return 2;
  }
}

std::int32_t default_group(std::int32_t ranks, std::int32_t microbatches) {
  for (std::int32_t group = ranks; group < microbatches; ++group) {
    const std::int32_t rest = microbatches % group;
    if (rest == 0 || rest >= ranks) return group;
  }
  return microbatches;
}

ScheduleShape with_defaults(ScheduleShape shape) {
  if (shape.chunks == 0) shape.chunks = default_chunks(shape.kind);
  if (shape.kind == PipelineSchedule::kInterleaved && shape.group == 0) {
    shape.group = default_group(shape.ranks, shape.microbatches);
  }
  if (shape.memory_cap == 0) shape.memory_cap = shape.ranks * shape.chunks;
  return shape;
}

Schedule place_stages(const ScheduleShape& shape) {
  Schedule schedule;
  schedule.shape = shape;
  schedule.bidirectional = shape.kind == PipelineSchedule::kDualPipe;
  const std::int32_t ranks = shape.ranks;
  const bool zigzag = placement_of(shape) == ChunkPlacement::kZigzag;
  schedule.stage_of.resize(static_cast<std::size_t>(ranks));
  const std::int32_t chunks = std::max(shape.chunks, schedule.bidirectional ? 2 : 1);
  schedule.places.resize(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks));
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    for (std::int32_t chunk = 0; chunk < shape.chunks; ++chunk) {
      const bool reversed = chunk % 2 == 1 && (zigzag || schedule.bidirectional);
      const std::int32_t within = reversed ? ranks - 1 - rank : rank;
      const std::int32_t place = chunk * ranks + within;
      schedule.places[static_cast<std::size_t>(place)] = {rank, chunk};
      schedule.stage_of[static_cast<std::size_t>(rank)].push_back(schedule.bidirectional ? within : place);
    }
  }
  return schedule;
}

Schedule assemble(const ScheduleShape& shape) {
  Schedule schedule = place_stages(shape);
  switch (shape.kind) {
    case PipelineSchedule::kWave:
    case PipelineSchedule::kList: schedule.passes = list_orders(schedule); break;
    default:
      for (std::int32_t rank = 0; rank < shape.ranks; ++rank) {
        switch (shape.kind) {
          case PipelineSchedule::kZeroBubbleV:
          case PipelineSchedule::kVHalf:
          case PipelineSchedule::kVMin: schedule.passes.push_back(v_order(shape, rank)); break;
          case PipelineSchedule::kDualPipe:
          case PipelineSchedule::kDualPipeV: schedule.passes.push_back(dual_order(shape, rank)); break;
          default: schedule.passes.push_back(chained_order(shape, rank));
        }
      }
  }
  for (const std::vector<Pass>& order : schedule.passes) {
    for (const Pass& pass : order) schedule.splits_backward |= pass.kind == PassKind::kBackwardWeight;
  }
  return schedule;
}

Schedule build_schedule(const ScheduleShape& shape) {
  assert(schedule_fault(shape).empty());
  return assemble(with_defaults(shape));
}

std::optional<StagePlace> source_of(const Schedule& schedule, std::int32_t rank, const Pass& pass) {
  return along(schedule, rank, pass, pass.kind == PassKind::kForward ? -1 : +1);
}

std::optional<StagePlace> destination_of(const Schedule& schedule, std::int32_t rank, const Pass& pass) {
  return along(schedule, rank, pass, pass.kind == PassKind::kForward ? +1 : -1);
}

std::int64_t message_count(const Schedule& schedule) {
  std::int64_t count = 0;
  for (std::int32_t rank = 0; rank < schedule.shape.ranks; ++rank) {
    for (const Pass& pass : schedule.passes[static_cast<std::size_t>(rank)]) {
      const auto reader = destination_of(schedule, rank, pass);
      if (reader && reader->rank != rank) ++count;
    }
  }
  return count;
}

}  // namespace orrery

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "planner/pipeline_schedule.hpp"
#include "planner/schedule_orders.hpp"
#include "planner/schedule_progress.hpp"

namespace orrery {
namespace {

// Far beyond any real step; indices still fit, and a slip of the finger doesn't fill memory.
constexpr std::int64_t kMostPasses = 1 << 24;  // On all ranks together.
constexpr std::int32_t kMostRanks = 4096;

std::string range_fault(const ScheduleShape& shape, std::string_view name) {
  const auto too_small = [&](std::string_view what, std::int64_t value, std::int64_t least) {
    return fmt::format("{} schedule: {} is {}, expected at least {}", name, what, value, least);
  };
  if (shape.ranks < 1) return too_small("the number of ranks", shape.ranks, 1);
  if (shape.microbatches < 1) return too_small("the number of micro-batches", shape.microbatches, 1);
  if (shape.chunks < 0) return too_small("the number of chunks per rank", shape.chunks, 1);
  if (shape.group < 0) return too_small("the group", shape.group, 1);
  if (shape.memory_cap < 0) return too_small("the memory cap", shape.memory_cap, 1);
  if (shape.ranks > kMostRanks) {
    return fmt::format("{} schedule: {} ranks, expected at most {}", name, shape.ranks, kMostRanks);
  }
  const std::int64_t chunks = shape.chunks == 0 ? default_chunks(shape.kind) : shape.chunks;
  const std::int64_t places = shape.ranks * chunks;
  if (places > kMostPasses || places * shape.microbatches > kMostPasses / 3) {
    return fmt::format("{} schedule: {} ranks with {} chunks and {} micro-batches are more than {} passes",
                       name, shape.ranks, chunks, shape.microbatches, kMostPasses);
  }
  return "";
}

std::string chunk_fault(const ScheduleShape& shape, std::string_view name) {
  const auto expects = [&](std::string_view what) {
    return fmt::format("{} schedule: {} chunks per rank, expected {}", name, shape.chunks, what);
  };
  switch (shape.kind) {
    case PipelineSchedule::kGPipe:
    case PipelineSchedule::kOneForwardOneBackward:
    case PipelineSchedule::kEagerOneForwardOneBackward:
    case PipelineSchedule::kZeroBubbleH1:
    case PipelineSchedule::kZeroBubbleH2:
      return shape.chunks == 1 ? "" : expects("1; interleaved, looped-bfs, wave and list take several");
    case PipelineSchedule::kZeroBubbleV:
    case PipelineSchedule::kVHalf:
    case PipelineSchedule::kVMin:
    case PipelineSchedule::kDualPipe:
    case PipelineSchedule::kDualPipeV: return shape.chunks == 2 ? "" : expects("exactly 2");
    case PipelineSchedule::kInterleaved:
      return shape.chunks >= 2 ? "" : expects("at least 2; with 1 chunk use 1f1b");
    case PipelineSchedule::kWave:
      if (shape.chunks % 2 == 0) return "";
      return expects(shape.chunks == 1 ? "an even number (two per wave); nearest: 2"
                                       : fmt::format("an even number (two per wave); nearest: {} and {}",
                                                     shape.chunks - 1, shape.chunks + 1));
    case PipelineSchedule::kLoopedBfs:
    case PipelineSchedule::kList: return "";
  }
  return "";
}

std::string dual_fault(const ScheduleShape& shape, std::string_view name) {
  const bool both_ways = shape.kind == PipelineSchedule::kDualPipe;
  if (both_ways && shape.ranks % 2 != 0) {
    const std::string below = shape.ranks > 1 ? fmt::format("{} and ", shape.ranks - 1) : "";
    return fmt::format(
        "{} schedule: {} ranks, expected an even number, half for each direction; nearest: {}{}", name,
        shape.ranks, below, shape.ranks + 1);
  }
  if (shape.microbatches < 2 * shape.ranks) {
    return fmt::format(
        "{} schedule: {} micro-batches, expected at least 2 per rank to fill both ends; nearest: {}", name,
        shape.microbatches, 2 * shape.ranks);
  }
  if (both_ways && shape.microbatches % 2 != 0) {
    const std::int32_t below = shape.microbatches - 1;
    const std::string smaller = below >= 2 * shape.ranks ? fmt::format("{} and ", below) : "";
    return fmt::format(
        "{} schedule: {} micro-batches, expected an even number, half for each direction; nearest: {}{}",
        name, shape.microbatches, smaller, shape.microbatches + 1);
  }
  return "";
}

// A group that leaves no rank waiting: see default_group. Those never deadlock; others may.
bool fits(const ScheduleShape& shape, std::int32_t group) {
  const std::int32_t rest = shape.microbatches % group;
  return group >= shape.microbatches || (group >= shape.ranks && (rest == 0 || rest >= shape.ranks));
}

std::string nearest_groups(const ScheduleShape& shape) {
  std::int32_t below = shape.group, above = shape.group;
  while (below > 0 && !fits(shape, below)) --below;
  while (!fits(shape, above)) ++above;  // The number of micro-batches fits.
  return below > 0 ? fmt::format("{} and {}", below, above) : fmt::format("{}", above);
}

std::string group_fault(const ScheduleShape& shape, std::string_view name) {
  if (fits(shape, shape.group)) return "";
  const Schedule schedule = assemble(shape);
  const auto stuck = run_passes(schedule, true, [](std::int32_t, std::size_t, std::span<const Pass>) {});
  if (stuck.empty()) return "";
  const std::int32_t rest = shape.microbatches % shape.group;
  const std::string why =
      shape.group < shape.ranks
          ? fmt::format("groups of {} micro-batches on {} ranks", shape.group, shape.ranks)
          : fmt::format("a last group of {} (groups of {} in {} micro-batches) on {} ranks", rest,
                        shape.group, shape.microbatches, shape.ranks);
  return fmt::format("{} schedule: {} end in a deadlock: {}; groups that work: {}", name, why,
                     blocked_text(schedule, stuck), nearest_groups(shape));
}

std::string times_fault(const ScheduleShape& shape, std::string_view name) {
  if (shape.memory_cap < shape.chunks) {
    return fmt::format(
        "{} schedule: a memory cap of {} chunk activations holds no micro-batch, expected at least {}", name,
        shape.memory_cap, shape.chunks);
  }
  if (!shape.times) return "";
  const StageTimes& times = *shape.times;
  const auto stages = static_cast<std::size_t>(shape.ranks) * static_cast<std::size_t>(shape.chunks);
  for (const auto* values : {&times.forward, &times.input, &times.weight}) {
    if (values->size() != stages) {
      return fmt::format("{} schedule: times of {} virtual stages, expected {} ({} ranks with {} chunks)",
                         name, values->size(), stages, shape.ranks, shape.chunks);
    }
    for (const double value : *values) {
      if (!std::isfinite(value) || value < 0) {
        return fmt::format("{} schedule: a stage time of {}, expected a finite one from 0 on", name, value);
      }
    }
  }
  if (!std::isfinite(times.latency) || times.latency < 0) {
    return fmt::format("{} schedule: a latency of {}, expected a finite one from 0 on", name, times.latency);
  }
  return "";
}

}  // namespace

std::string schedule_fault(const ScheduleShape& wanted) {
  const std::string_view name = to_string(wanted.kind);
  std::string fault = range_fault(wanted, name);
  if (!fault.empty()) return fault;
  const ScheduleShape shape = with_defaults(wanted);
  fault = chunk_fault(shape, name);
  if (!fault.empty()) return fault;
  switch (shape.kind) {
    case PipelineSchedule::kInterleaved: return group_fault(shape, name);
    case PipelineSchedule::kDualPipe:
    case PipelineSchedule::kDualPipeV: return dual_fault(shape, name);
    case PipelineSchedule::kWave:
    case PipelineSchedule::kList: return times_fault(shape, name);
    default: return "";
  }
}

}  // namespace orrery

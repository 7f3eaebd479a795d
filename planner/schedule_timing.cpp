#include "planner/schedule_timing.hpp"

#include <algorithm>
#include <cassert>

#include "planner/schedule_progress.hpp"

namespace orrery {
namespace {

double of(const std::vector<double>& by_stage, std::int32_t stage) {
  return by_stage[static_cast<std::size_t>(stage)];
}

std::int32_t stage_of(const Schedule& schedule, std::int32_t rank, const Pass& pass) {
  return schedule.stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.chunk)];
}

double duration(const StageTimes& times, PassKind kind, std::int32_t stage) {
  switch (kind) {
    case PassKind::kForward: return of(times.forward, stage);
    case PassKind::kBackward: return of(times.input, stage) + of(times.weight, stage);
    case PassKind::kBackwardInput: return of(times.input, stage);
    case PassKind::kBackwardWeight: return of(times.weight, stage);
  }
  return 0;
}

// Of one pass, or of two that overlap.
double duration(const Schedule& schedule, const StageTimes& times, std::int32_t rank,
                std::span<const Pass> unit) {
  double sum = 0, longest = 0;
  for (const Pass& pass : unit) {
    const double alone = duration(times, pass.kind, stage_of(schedule, rank, pass));
    sum += alone;
    longest = std::max(longest, alone);
  }
  return unit.size() == 1 ? sum : std::max(longest, sum * (1 - times.overlap_gain.value_or(0)));
}

// When each pass's output is there, and each rank's clock.
class Clock {
 public:
  Clock(const Schedule& schedule, const StageTimes& times) : schedule_(schedule), times_(times) {
    const auto ranks = static_cast<std::size_t>(schedule.shape.ranks);
    const auto values =
        static_cast<std::size_t>(schedule.stages()) * static_cast<std::size_t>(schedule.shape.microbatches);
    forward_end_.resize(values);
    backward_end_.resize(values);
    timing.spans.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) timing.spans[r].resize(schedule.passes[r].size());
    free_.resize(ranks);
    busy_.resize(ranks);
  }

  void run(std::int32_t rank, std::size_t first, std::span<const Pass> unit) {
    const auto r = static_cast<std::size_t>(rank);
    double start = free_[r];
    for (const Pass& pass : unit) start = std::max(start, ready(rank, pass));
    const double taken = duration(schedule_, times_, rank, unit);
    const double end = start + taken;
    for (std::size_t i = 0; i < unit.size(); ++i) {
      timing.spans[r][first + i] = {start, end};
      const Pass& pass = unit[i];
      if (pass.kind == PassKind::kForward) forward_end_[index(rank, pass)] = end;
      if (pass.kind == PassKind::kBackward || pass.kind == PassKind::kBackwardInput) {
        backward_end_[index(rank, pass)] = end;
      }
    }
    free_[r] = end;
    busy_[r] += taken;
  }

  ScheduleTiming timing;

  void finish() {
    double busy = 0;
    for (std::size_t r = 0; r < free_.size(); ++r) {
      const double span = timing.spans[r].empty() ? 0 : free_[r] - timing.spans[r].front().start;
      timing.rank_span.push_back(span);
      timing.makespan = std::max(timing.makespan, free_[r]);
      timing.longest_span = std::max(timing.longest_span, span);
      busy += busy_[r];
    }
    busy /= static_cast<double>(free_.size());
    timing.bubble_rate = timing.longest_span > 0 ? 1 - busy / timing.longest_span : 0;
  }

 private:
  std::size_t index(std::int32_t rank, const Pass& pass) const {
    return schedule_index(schedule_, stage_of(schedule_, rank, pass), pass.microbatch);
  }

  double ready(std::int32_t rank, const Pass& pass) const {
    if (pass.kind == PassKind::kBackwardWeight) return 0;  // Its rank did the input part before.
    const auto source = source_of(schedule_, rank, pass);
    if (!source) return 0;
    const std::int32_t stage = stage_of(schedule_, source->rank, {pass.kind, source->chunk, pass.microbatch});
    const auto& ends = pass.kind == PassKind::kForward ? forward_end_ : backward_end_;
    return ends[schedule_index(schedule_, stage, pass.microbatch)] +
           (source->rank == rank ? 0 : times_.latency);
  }

  const Schedule& schedule_;
  const StageTimes& times_;
  std::vector<double> forward_end_, backward_end_;  // By schedule_index.
  std::vector<double> free_, busy_;                 // By rank.
};

// Total time of a rank's passes, overlaps counted once.
double work(const Schedule& schedule, const StageTimes& times, std::int32_t rank) {
  const std::span<const Pass> passes = schedule.passes[static_cast<std::size_t>(rank)];
  double sum = 0;
  for (std::size_t i = 0; i < passes.size();) {
    const std::size_t size = times.overlap_gain ? unit_size(passes, i) : 1;
    sum += duration(schedule, times, rank, passes.subspan(i, size));
    i += size;
  }
  return sum;
}

}  // namespace

StageTimes even_times(const ScheduleShape& shape, double forward, double input, double weight,
                      double latency) {
  const ScheduleShape full = with_defaults(shape);
  const double parts = full.kind == PipelineSchedule::kDualPipe ? 1 : full.chunks;
  const auto stages = static_cast<std::size_t>(full.ranks * parts);
  StageTimes times;
  times.forward.assign(stages, forward / parts);
  times.input.assign(stages, input / parts);
  times.weight.assign(stages, weight / parts);
  times.latency = latency;
  return times;
}

ScheduleTiming time_schedule(const Schedule& schedule, const StageTimes& times) {
  assert(times.forward.size() == static_cast<std::size_t>(schedule.stages()));
  assert(times.input.size() == times.forward.size() && times.weight.size() == times.forward.size());
  Clock clock(schedule, times);
  const auto stuck = run_passes(schedule, times.overlap_gain.has_value(),
                                [&](std::int32_t rank, std::size_t first, std::span<const Pass> unit) {
                                  clock.run(rank, first, unit);
                                });
  if (!stuck.empty()) fail_blocked(schedule, stuck);
  clock.finish();
  return std::move(clock.timing);
}

std::vector<double> peak_memory(const Schedule& schedule, const std::vector<double>& kept_by_stage,
                                const std::vector<double>& needed_by_weight) {
  std::vector<double> peaks;
  for (std::int32_t rank = 0; rank < schedule.shape.ranks; ++rank) {
    double held = 0, peak = 0;
    for (const Pass& pass : schedule.passes[static_cast<std::size_t>(rank)]) {
      const std::int32_t stage = stage_of(schedule, rank, pass);
      switch (pass.kind) {
        case PassKind::kForward: held += of(kept_by_stage, stage); break;
        case PassKind::kBackward: held -= of(kept_by_stage, stage); break;
        case PassKind::kBackwardInput: held += of(needed_by_weight, stage) - of(kept_by_stage, stage); break;
        case PassKind::kBackwardWeight: held -= of(needed_by_weight, stage); break;
      }
      peak = std::max(peak, held);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<double> peak_activations(const Schedule& schedule, double weight_share) {
  const auto stages = static_cast<std::size_t>(schedule.stages());
  const double kept = static_cast<double>(schedule.shape.ranks) / static_cast<double>(stages);
  return peak_memory(schedule, std::vector(stages, kept), std::vector(stages, kept * weight_share));
}

std::vector<std::vector<std::int32_t>> most_in_flight(const Schedule& schedule) {
  std::vector<std::vector<std::int32_t>> most;
  for (const std::vector<Pass>& passes : schedule.passes) {
    std::vector<std::int32_t> held(static_cast<std::size_t>(schedule.shape.chunks)), peak = held;
    for (const Pass& pass : passes) {
      const auto chunk = static_cast<std::size_t>(pass.chunk);
      if (pass.kind == PassKind::kForward) peak[chunk] = std::max(peak[chunk], ++held[chunk]);
      if (pass.kind == PassKind::kBackward || pass.kind == PassKind::kBackwardWeight) --held[chunk];
    }
    most.push_back(peak);
  }
  return most;
}

double makespan_bound(const Schedule& schedule, const StageTimes& times) {
  const ScheduleShape& shape = schedule.shape;
  double bound = 0, chain = 0;
  for (std::int32_t s = 0; s < schedule.stages(); ++s)
    chain += of(times.forward, s) + duration(times, PassKind::kBackward, s);
  for (std::int32_t rank = 0; rank < shape.ranks; ++rank) {
    const auto& own = schedule.stage_of[static_cast<std::size_t>(rank)];
    const std::int32_t first = *std::min_element(own.begin(), own.end());
    double before = 0;
    for (std::int32_t s = 0; s < first; ++s) {
      const bool moves = schedule.place_of(s, 0).rank != schedule.place_of(s + 1, 0).rank;
      before += of(times.forward, s) + (moves ? times.latency : 0);
      if (!schedule.splits_backward) {
        before += duration(times, PassKind::kBackward, s) + (moves ? times.latency : 0);
      }
    }
    bound = std::max(bound, before + work(schedule, times, rank));
    if (shape.kind != PipelineSchedule::kOneForwardOneBackward) continue;
    const std::int32_t late =
        std::max(0, shape.microbatches - shape.ranks + rank);  // Forwards after the warm-up.
    bound = std::max(bound, chain + 2 * times.latency * (shape.ranks - 1) +
                                (shape.microbatches - 1) * duration(times, PassKind::kBackward, rank) +
                                late * of(times.forward, rank));
  }
  return bound;
}

}  // namespace orrery

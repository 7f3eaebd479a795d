#include "planner/schedule_verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/schedule_progress.hpp"

namespace orrery {
namespace {

// Finds passes that are missing, twice or out of range.
class Census {
 public:
  explicit Census(const Schedule& schedule) : schedule_(schedule) {
    seen_.resize(static_cast<std::size_t>(schedule.stages()) *
                 static_cast<std::size_t>(schedule.shape.microbatches));
  }

  std::vector<std::string> faults() {
    for (std::int32_t rank = 0; rank < schedule_.shape.ranks; ++rank) {
      const std::span<const Pass> passes = schedule_.passes[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < passes.size(); ++i) {
        if (in_range(rank, passes[i])) count(rank, passes[i]);
        if (passes[i].overlaps_next && !may_overlap(passes, i)) {
          say(rank, passes[i], "overlaps the next pass, which has to be a backward of other activations");
        }
      }
    }
    for (std::int32_t stage = 0; stage < schedule_.stages(); ++stage) {
      for (std::int32_t k = 0; k < schedule_.shape.microbatches; ++k) check_seen(stage, k);
    }
    return std::move(faults_);
  }

 private:
  using Counts = std::array<std::uint8_t, 4>;  // By PassKind, saturating at 2.

  void say(std::int32_t rank, const Pass& pass, std::string_view what) {
    faults_.push_back(fmt::format("rank {}: {} {}", rank, pass_text(schedule_, pass), what));
  }

  bool in_range(std::int32_t rank, const Pass& pass) {
    const ScheduleShape& shape = schedule_.shape;
    if (pass.chunk < 0 || pass.chunk >= shape.chunks) {
      say(rank, pass, fmt::format("names a chunk that is not in 0..{}", shape.chunks - 1));
      return false;
    }
    if (pass.microbatch < 0 || pass.microbatch >= shape.microbatches) {
      say(rank, pass, fmt::format("names a micro-batch that is not in 0..{}", shape.microbatches - 1));
      return false;
    }
    const std::int32_t stage =
        schedule_.stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.chunk)];
    if (schedule_.place_of(stage, pass.microbatch) == StagePlace{rank, pass.chunk}) return true;
    say(rank, pass, "is a micro-batch of the other direction");
    return false;
  }

  void count(std::int32_t rank, const Pass& pass) {
    const std::int32_t stage =
        schedule_.stage_of[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.chunk)];
    std::uint8_t& times =
        seen_[schedule_index(schedule_, stage, pass.microbatch)][static_cast<std::size_t>(pass.kind)];
    if (times == 1) say(rank, pass, "is there more than once");
    times = static_cast<std::uint8_t>(std::min(times + 1, 2));
  }

  static bool may_overlap(std::span<const Pass> passes, std::size_t first) {
    if (first + 1 == passes.size() || passes[first].kind != PassKind::kForward) return false;
    const Pass& next = passes[first + 1];
    const bool backward = next.kind == PassKind::kBackward || next.kind == PassKind::kBackwardInput;
    return backward && !next.overlaps_next &&
           (next.chunk != passes[first].chunk || next.microbatch != passes[first].microbatch);
  }

  void check_seen(std::int32_t stage, std::int32_t microbatch) {
    const Counts& counts = seen_[schedule_index(schedule_, stage, microbatch)];
    const auto times = [&](PassKind kind) { return counts[static_cast<std::size_t>(kind)]; };
    const StagePlace place = schedule_.place_of(stage, microbatch);
    const auto missing = [&](PassKind kind) {
      say(place.rank, {kind, place.chunk, microbatch}, "is missing");
    };
    if (times(PassKind::kForward) == 0) missing(PassKind::kForward);
    const bool whole = times(PassKind::kBackward) > 0;
    const bool input = times(PassKind::kBackwardInput) > 0, weight = times(PassKind::kBackwardWeight) > 0;
    if (whole && (input || weight)) {
      say(place.rank, {PassKind::kBackward, place.chunk, microbatch}, "is there whole and in parts");
    } else if (!whole && !input && !weight) {
      missing(PassKind::kBackward);
    } else if (input != weight) {
      missing(input ? PassKind::kBackwardWeight : PassKind::kBackwardInput);
    }
  }

  const Schedule& schedule_;
  std::vector<Counts> seen_;  // By schedule_index.
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify(const Schedule& schedule, const MessageQueues& queues) {
  std::vector<std::string> faults = Census(schedule).faults();
  if (!faults.empty()) return faults;
  std::vector<std::size_t> stuck =
      run_passes(schedule, true, [](std::int32_t, std::size_t, std::span<const Pass>) {});
  if (!stuck.empty()) return {"passes wait for each other: " + blocked_text(schedule, stuck)};
  stuck = dry_run(schedule, queues);
  if (!stuck.empty()) return {"messages block each other: " + blocked_text(schedule, stuck)};
  return {};
}

}  // namespace orrery

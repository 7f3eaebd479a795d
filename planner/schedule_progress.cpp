#include "planner/schedule_progress.hpp"

#include <algorithm>
#include <deque>

#include "base/error.hpp"

namespace orrery {
namespace {

// Which forwards and input parts have been done.
class Progress {
 public:
  explicit Progress(const Schedule& schedule) : schedule_(schedule) {
    const auto values =
        static_cast<std::size_t>(schedule.stages()) * static_cast<std::size_t>(schedule.shape.microbatches);
    forward_.resize(values);
    backward_.resize(values);
  }

  bool ready(std::int32_t rank, const Pass& pass) const {
    const std::size_t own = index({rank, pass.chunk}, pass.microbatch);
    if (pass.kind == PassKind::kBackwardWeight) return backward_[own];
    if (pass.kind != PassKind::kForward && !forward_[own]) return false;
    const auto source = source_of(schedule_, rank, pass);
    if (!source) return true;
    return (pass.kind == PassKind::kForward ? forward_ : backward_)[index(*source, pass.microbatch)];
  }

  void finish(std::int32_t rank, const Pass& pass) {
    const std::size_t own = index({rank, pass.chunk}, pass.microbatch);
    if (pass.kind == PassKind::kForward) forward_[own] = true;
    if (pass.kind == PassKind::kBackward || pass.kind == PassKind::kBackwardInput) backward_[own] = true;
  }

 private:
  std::size_t index(const StagePlace& place, std::int32_t microbatch) const {
    const std::int32_t stage =
        schedule_.stage_of[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.chunk)];
    return schedule_index(schedule_, stage, microbatch);
  }

  const Schedule& schedule_;
  std::vector<char> forward_, backward_;
};

// The pass of the same micro-batch and chunk that should have come before, where it hasn't.
std::optional<Pass> undone_before(std::span<const Pass> passes, std::size_t at) {
  Pass before = passes[at];
  if (before.kind == PassKind::kForward) return std::nullopt;
  before.kind = before.kind == PassKind::kBackwardWeight ? PassKind::kBackwardInput : PassKind::kForward;
  const auto is_before = [&](const Pass& pass) {
    return pass.kind == before.kind && pass.chunk == before.chunk && pass.microbatch == before.microbatch;
  };
  if (std::any_of(passes.begin(), passes.begin() + static_cast<std::ptrdiff_t>(at), is_before))
    return std::nullopt;
  return before;
}

}  // namespace

std::vector<std::size_t> run_passes(const Schedule& schedule, bool overlap, const UnitVisitor& visit) {
  Progress progress(schedule);
  const auto ranks = static_cast<std::size_t>(schedule.shape.ranks);
  std::vector<std::size_t> next(ranks);
  std::deque<std::int32_t> awake;
  std::vector<char> is_awake(ranks, true);
  for (std::size_t r = 0; r < ranks; ++r) awake.push_back(static_cast<std::int32_t>(r));
  while (!awake.empty()) {
    const std::int32_t rank = awake.front();
    const auto r = static_cast<std::size_t>(rank);
    awake.pop_front();
    is_awake[r] = false;
    const std::span<const Pass> passes = schedule.passes[r];
    while (next[r] < passes.size()) {
      const std::span<const Pass> unit = passes.subspan(next[r], overlap ? unit_size(passes, next[r]) : 1);
      bool ready = true;
      for (const Pass& pass : unit) ready = ready && progress.ready(rank, pass);
      if (!ready) break;
      visit(rank, next[r], unit);
      next[r] += unit.size();
      for (const Pass& pass : unit) {
        progress.finish(rank, pass);
        const auto reader = destination_of(schedule, rank, pass);
        if (!reader || is_awake[static_cast<std::size_t>(reader->rank)]) continue;
        is_awake[static_cast<std::size_t>(reader->rank)] = true;
        awake.push_back(reader->rank);
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (next[r] < schedule.passes[r].size()) return next;
  }
  return {};
}

std::string pass_text(const Schedule& schedule, const Pass& pass) {
  static constexpr std::string_view kLetters = "FBIW";
  const std::string chunk = schedule.shape.chunks > 1 ? fmt::format(" of chunk {}", pass.chunk) : "";
  return fmt::format("{}{}{}", kLetters[static_cast<std::size_t>(pass.kind)], pass.microbatch, chunk);
}

std::string blocked_text(const Schedule& schedule, const std::vector<std::size_t>& stopped_at) {
  std::string text;
  for (std::size_t r = 0; r < stopped_at.size(); ++r) {
    if (stopped_at[r] >= schedule.passes[r].size()) continue;
    const auto rank = static_cast<std::int32_t>(r);
    const Pass& pass = schedule.passes[r][stopped_at[r]];
    text += fmt::format("{}rank {} at {}", text.empty() ? "" : "; ", rank, pass_text(schedule, pass));
    if (const auto before = undone_before(schedule.passes[r], stopped_at[r])) {
      text += fmt::format(" before its own {}", pass_text(schedule, *before));
    } else if (const auto source = source_of(schedule, rank, pass)) {
      const Pass awaited = {pass.kind, source->chunk, pass.microbatch};
      text += fmt::format(", after rank {}'s {}", source->rank, pass_text(schedule, awaited));
    }
  }
  return text;
}

void fail_blocked(const Schedule& schedule, const std::vector<std::size_t>& stopped_at) {
  fail(ErrorKind::kInfeasible, "{} schedule: the order can't finish: {}; check it with verify()",
       to_string(schedule.shape.kind), blocked_text(schedule, stopped_at));
}

}  // namespace orrery

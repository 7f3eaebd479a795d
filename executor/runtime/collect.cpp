// What stands in the World after a run.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "executor/runtime/run.hpp"

namespace orrery::host {
namespace {

std::int64_t total_microbatches(const Program& program, const World& world) {
  std::int64_t total = 0;
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    const RankId rank(r);
    if (!program.role_of[rank.index()].valid()) continue;
    const std::int64_t first = program.first_microbatch.empty() ? 0 : program.first_microbatch[rank.index()];
    total = std::max(total, first + std::ssize(world.row(rank, 0)) - std::int64_t{World::kFirstLoss});
  }
  return total;
}

// Ranks that hold other tokens of a micro-batch have other parts of its loss; those of one tensor-parallel
// group the same.
double mean_loss(const World& world, std::int64_t step, std::int64_t microbatches) {
  const Program& program = world.program();
  const auto at = coordinates(program);
  std::map<std::pair<std::int64_t, std::int32_t>, double> parts;
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    const RankId rank(r);
    if (!program.role_of[rank.index()].valid()) continue;
    std::int32_t context = 0;
    for (std::size_t a = 0; a < program.axes.size(); ++a) {
      if (program.axes[a].name == "cp") context = at[a][rank.index()].position;
    }
    const std::span<double> losses = world.row(rank, step).subspan(World::kFirstLoss);
    const std::int64_t first = program.first_microbatch.empty() ? 0 : program.first_microbatch[rank.index()];
    for (std::size_t m = 0; m < losses.size(); ++m) {
      if (losses[m] == losses[m])
        parts.try_emplace({first + static_cast<std::int64_t>(m), context}, losses[m]);
    }
  }
  double sum = 0;
  for (const auto& [key, loss] : parts) sum += loss;
  return sum / static_cast<double>(microbatches);
}

double step_end_ns(const World& world, std::int64_t step) {
  double end = 0;
  for (std::int32_t r = 0; r < world.program().world_size(); ++r) {
    const RankId rank(r);
    if (world.program().role_of[rank.index()].valid())
      end = std::max(end, world.row(rank, step)[World::kStepEnd]);
  }
  return end;
}

// The recorded step whose length is the median of those.
std::int64_t median_step(const World& world, std::int64_t steps) {
  const std::int64_t first = std::max<std::int64_t>(1, steps - world.record().stamps);
  std::vector<std::pair<double, std::int64_t>> lengths;
  for (std::int64_t step = first; step < steps; ++step) {
    lengths.emplace_back(step_end_ns(world, step) - step_end_ns(world, step - 1), step);
  }
  if (lengths.empty()) return steps - 1;
  std::sort(lengths.begin(), lengths.end());
  return lengths[lengths.size() / 2].second;
}

SimTime since(std::int64_t ns, std::int64_t begin) { return {(ns - begin) * 1000}; }

Timeline timeline_of(const World& world, std::int64_t steps) {
  const Program& program = world.program();
  const std::int64_t step = median_step(world, steps);
  std::int64_t begin = step > 0 ? static_cast<std::int64_t>(step_end_ns(world, step - 1)) : INT64_MAX;
  Timeline timeline;
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    const RankId rank(r);
    if (!program.role_of[rank.index()].valid()) continue;
    timeline.classes.push_back({program.role_of[rank.index()], {rank}});
    for (std::int32_t i = 0; i < std::ssize(world.role(rank).instructions); ++i) {
      begin = std::min(begin, world.stamp(rank, step, i).start_ns);
    }
  }
  for (std::size_t c = 0; c < timeline.classes.size(); ++c) {
    const RankId rank = timeline.classes[c].ranks.front();
    const auto& instructions = world.role(rank).instructions;
    for (std::int32_t i = 0; i < std::ssize(instructions); ++i) {
      const Stamp& stamp = world.stamp(rank, step, i);
      timeline.spans.push_back(
          {static_cast<std::int32_t>(c), instructions[static_cast<std::size_t>(i)].stream, i, i,
           since(stamp.start_ns, begin), since(stamp.ready_ns, begin), since(stamp.end_ns, begin)});
      timeline.makespan = std::max(timeline.makespan, timeline.spans.back().end);
    }
  }
  timeline.step_time = step > 0 ? since(static_cast<std::int64_t>(step_end_ns(world, step)),
                                        static_cast<std::int64_t>(step_end_ns(world, step - 1)))
                                : timeline.makespan;
  timeline.steps = static_cast<std::int32_t>(steps);
  return timeline;
}

}  // namespace

RunResult collect(const World& world, const RunOptions& options) {
  const Program& program = world.program();
  const std::int64_t microbatches = total_microbatches(program, world);
  RunResult result;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    result.losses.push_back(mean_loss(world, step, microbatches));
    if (step > std::max<std::int64_t>(0, options.warmup - 1)) {
      result.step_s.push_back(1e-9 * (step_end_ns(world, step) - step_end_ns(world, step - 1)));
    }
  }
  for (std::int32_t r = 0; r < program.world_size(); ++r) {
    const RankId rank(r);
    if (!program.role_of[rank.index()].valid()) continue;
    if (result.gradient_norms.empty()) {
      for (std::int64_t step = 0; step < options.steps; ++step) {
        const double norm = world.row(rank, step)[World::kNorm];
        if (norm >= 0) result.gradient_norms.push_back(norm / static_cast<double>(microbatches));
      }
    }
    result.workspace_bytes = std::max(result.workspace_bytes, world.header(rank).workspace_bytes);
    for (std::size_t i = 0; i < 2; ++i) result.parameter_hash[i] += world.header(rank).parameter_hash[i];
    result.peak_memory_bytes =
        std::max(result.peak_memory_bytes, layout_of(world.role(rank), world.record()).arena_bytes);
  }
  result.timeline = timeline_of(world, options.steps);
  return result;
}

std::string to_text(const std::array<std::uint64_t, 2>& hash) {
  return fmt::format("{:016x}{:016x}", hash[0], hash[1]);
}

}  // namespace orrery::host

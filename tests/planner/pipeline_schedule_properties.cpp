// What must hold for every schedule of every size.

#include <catch2/catch.hpp>
#include <functional>

#include "planner/schedule_orders.hpp"
#include "planner/schedule_timing.hpp"
#include "planner/schedule_verify.hpp"

namespace orrery {
namespace {

using enum PipelineSchedule;

// Every kind on 1 to 8 ranks with 1 to 20 micro-batches, and chunk counts and groups that its rules are
// about.
void for_each_shape(const std::function<void(const ScheduleShape&)>& visit) {
  for (const PipelineSchedule kind : all_pipeline_schedules()) {
    for (std::int32_t ranks = 1; ranks <= 8; ++ranks) {
      for (std::int32_t microbatches = 1; microbatches <= 20; ++microbatches) {
        for (std::int32_t chunks = 1; chunks <= 4; ++chunks) {
          ScheduleShape shape;
          shape.kind = kind;
          shape.ranks = ranks;
          shape.microbatches = microbatches;
          shape.chunks = chunks;
          visit(shape);
          if (kind != kInterleaved) continue;
          for (std::int32_t group = 1; group <= microbatches; group += 2) {
            shape.group = group;
            visit(shape);
          }
        }
      }
    }
  }
}

std::string describe(const ScheduleShape& shape) {
  return std::string(to_string(shape.kind)) + " p=" + std::to_string(shape.ranks) +
         " m=" + std::to_string(shape.microbatches) + " v=" + std::to_string(shape.chunks) +
         " g=" + std::to_string(shape.group);
}

// Refused although it doesn't break: GPipe with chunks is looped-bfs and interleaved with one is 1F1B, half a
// wave has no name, DualPipe has nothing to do for a third chunk, and its authors ask for one micro-batch
// (pair) more than their steps need.
bool refused_by_name(const ScheduleShape& shape) {
  switch (shape.kind) {
    case kGPipe: return shape.chunks > 1;
    case kInterleaved: return shape.chunks == 1;
    case kWave: return shape.chunks % 2 == 1;
    case kDualPipe: return shape.chunks > 2 || shape.microbatches == 2 * shape.ranks - 2;
    case kDualPipeV: return shape.microbatches == 2 * shape.ranks - 1;
    default: return false;
  }
}

}  // namespace

TEST_CASE("what isn't refused runs, with every message", "[planner][pipeline]") {
  int accepted = 0;
  for_each_shape([&](const ScheduleShape& shape) {
    if (!schedule_fault(shape).empty()) return;
    ++accepted;
    const Schedule schedule = build_schedule(shape);
    for (const std::int32_t ahead : {0, 1}) {
      const std::vector<std::string> faults = verify(schedule, {true, ahead});
      if (faults.empty()) continue;
      INFO(describe(shape) << ": " << faults[0]);
      CHECK(faults.empty());
    }
  });
  CHECK(accepted > 5000);
}

TEST_CASE("what is refused breaks", "[planner][pipeline]") {
  int refused = 0;
  for_each_shape([&](const ScheduleShape& shape) {
    if (schedule_fault(shape).empty() || refused_by_name(shape)) return;
    ++refused;
    if (!verify(assemble(with_defaults(shape))).empty()) return;
    INFO(describe(shape) << ": " << schedule_fault(shape));
    CHECK(false);
  });
  CHECK(refused > 3000);
}

TEST_CASE("the groups that a refusal names work", "[planner][pipeline]") {
  int named = 0;
  for_each_shape([&](const ScheduleShape& shape) {
    const std::string fault = schedule_fault(shape), marker = "groups that work: ";
    const std::size_t at = fault.find(marker);
    if (at == std::string::npos) return;
    ScheduleShape mended = shape;
    mended.group = std::stoi(fault.substr(at + marker.size()));
    INFO(describe(shape));
    CHECK(schedule_fault(mended).empty());
    ++named;
  });
  CHECK(named > 100);
}

TEST_CASE("timed schedules keep to their order and never beat the bound", "[planner][pipeline]") {
  for_each_shape([&](const ScheduleShape& shape) {
    if (!schedule_fault(shape).empty() || shape.microbatches % 4 != 0) return;
    const Schedule schedule = build_schedule(shape);
    const StageTimes times = even_times(shape, 1, 1.25, 0.75, 0.125);
    const ScheduleTiming timing = time_schedule(schedule, times);
    bool ordered = true;
    for (std::size_t r = 0; r < timing.spans.size(); ++r) {
      for (std::size_t i = 1; i < timing.spans[r].size(); ++i) {
        ordered = ordered && timing.spans[r][i].start >= timing.spans[r][i - 1].end;
      }
    }
    INFO(describe(shape));
    CHECK(ordered);
    CHECK(timing.longest_span <= timing.makespan);
    CHECK(timing.bubble_rate >= -1e-12);
    CHECK(makespan_bound(schedule, times) <= timing.makespan * (1 + 1e-12));
  });
}

TEST_CASE("all activations are given back", "[planner][pipeline]") {
  for_each_shape([&](const ScheduleShape& shape) {
    if (!schedule_fault(shape).empty() || shape.microbatches > 9) return;
    const Schedule schedule = build_schedule(shape);
    std::int64_t held = 0;
    for (const std::vector<Pass>& passes : schedule.passes) {
      for (const Pass& pass : passes) {
        if (pass.kind == PassKind::kForward) ++held;
        if (pass.kind == PassKind::kBackward || pass.kind == PassKind::kBackwardWeight) --held;
      }
    }
    INFO(describe(shape));
    CHECK(held == 0);
  });
}

}  // namespace orrery

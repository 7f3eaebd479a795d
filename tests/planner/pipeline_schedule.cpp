#include "planner/pipeline_schedule.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "planner/schedule_orders.hpp"
#include "planner/schedule_verify.hpp"

namespace orrery {
namespace {

using enum PipelineSchedule;

ScheduleShape shape(PipelineSchedule kind, std::int32_t ranks, std::int32_t microbatches,
                    std::int32_t chunks = 0) {
  ScheduleShape result;
  result.kind = kind;
  result.ranks = ranks;
  result.microbatches = microbatches;
  result.chunks = chunks;
  return result;
}

// "F0 f1 I0 …": lower case in chunk 1; "+" joins passes that overlap.
std::string order(const ScheduleShape& wanted, std::size_t rank) {
  const Schedule schedule = build_schedule(wanted);
  std::string text;
  for (const Pass& pass : schedule.passes[rank]) {
    text += (pass.chunk == 0 ? "FBIW" : "fbiw")[static_cast<std::size_t>(pass.kind)];
    text += std::to_string(pass.microbatch);
    text += pass.overlaps_next ? '+' : ' ';
  }
  text.pop_back();
  return text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("every kind of pipeline schedule has its word", "[planner][pipeline]") {
  CHECK(all_pipeline_schedules().size() == 14);
  for (const PipelineSchedule kind : all_pipeline_schedules()) {
    CHECK(pipeline_schedule_from(to_string(kind)) == kind);
  }
  CHECK(pipeline_schedule_from("eager-1f1b") == kEagerOneForwardOneBackward);
  CHECK(!pipeline_schedule_from("2f2b"));
}

TEST_CASE("GPipe does all forwards, then all backwards from the last one", "[planner][pipeline]") {
  CHECK(order(shape(kGPipe, 2, 3), 0) == "F0 F1 F2 B2 B1 B0");
}

TEST_CASE("1F1B warms up with one forward less on each later rank", "[planner][pipeline]") {
  const ScheduleShape wanted = shape(kOneForwardOneBackward, 4, 6);
  CHECK(order(wanted, 0) == "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  CHECK(order(wanted, 1) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  CHECK(order(wanted, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
  CHECK(order(shape(kOneForwardOneBackward, 4, 2), 0) == "F0 F1 B0 B1");
}

TEST_CASE("eager 1F1B warms up with two forwards less on each later rank", "[planner][pipeline]") {
  // 2(4 − r) − 2 warm-ups: 6, 4, 2, 0.
  const ScheduleShape wanted = shape(kEagerOneForwardOneBackward, 4, 8);
  CHECK(order(wanted, 0) == "F0 F1 F2 F3 F4 F5 F6 B0 F7 B1 B2 B3 B4 B5 B6 B7");
  CHECK(order(wanted, 2) == "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7");
  CHECK(order(wanted, 3) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
}

TEST_CASE("interleaved 1F1B takes groups of micro-batches through its chunks", "[planner][pipeline]") {
  // p = 2, v = 2, g = 2: warm-up 2(2 − 1 − r) + 2 = 4 on rank 0, 2 on rank 1.
  const ScheduleShape wanted = shape(kInterleaved, 2, 4);
  CHECK(order(wanted, 0) == "F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 b2 b3 B2 B3");
  CHECK(order(wanted, 1) == "F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3");
}

TEST_CASE("looped BFS takes all micro-batches through a chunk, then the next", "[planner][pipeline]") {
  CHECK(order(shape(kLoopedBfs, 2, 2), 1) == "F0 F1 f0 f1 b1 b0 B1 B0");
}

TEST_CASE("ZB-H1 keeps as many weight parts waiting as ranks come before", "[planner][pipeline]") {
  const ScheduleShape wanted = shape(kZeroBubbleH1, 4, 6);
  CHECK(order(wanted, 3) == "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5");
  CHECK(order(wanted, 0) == "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5");
}

TEST_CASE("ZB-H2 doubles ZB-H1's warm-up and waiting weight parts", "[planner][pipeline]") {
  // 2(2 − r) − 1 forwards: 3 and 1; 2r weight parts wait: 0 and 2.
  const ScheduleShape wanted = shape(kZeroBubbleH2, 2, 4);
  CHECK(order(wanted, 0) == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  CHECK(order(wanted, 1) == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST_CASE("ZB-V goes down and up the ranks", "[planner][pipeline]") {
  // p = 2, m = 3 = 2p − 1: nothing is dropped.
  const ScheduleShape wanted = shape(kZeroBubbleV, 2, 3);
  CHECK(order(wanted, 0) == "F0 F1 F2 f0 i0 w0 f1 i1 w1 I0 W0 f2 i2 w2 I1 W1 I2 W2");
  CHECK(order(wanted, 1) == "F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 I1 i2 I2 W1 w2 W2");
  // What is made for 2p − 1 micro-batches and dropped leaves the rest in order.
  CHECK(order(shape(kZeroBubbleV, 2, 1), 1) == "F0 f0 i0 w0 I0 W0");
}

TEST_CASE("DualPipe overlaps one direction's forward with the other's backward", "[planner][pipeline]") {
  // p = 2: both ranks are at the turn (h = 0, n = 1). Steps: F0 F1; two main steps, the first forward and
  // backward apart; the last two backwards, of which the second is split.
  const ScheduleShape wanted = shape(kDualPipe, 2, 4);
  CHECK(order(wanted, 0) == "F0 f2 F1 b2 f3+B0 b3 I1 W1");
  CHECK(order(wanted, 1) == "f2 F0 f3 B0 F1+b2 B1 i3 w3");
}

TEST_CASE("DualPipeV does DualPipe's steps on a V", "[planner][pipeline]") {
  const ScheduleShape wanted = shape(kDualPipeV, 1, 3);
  CHECK(order(wanted, 0) == "F0 f0 F1 b0 f1+B0 F2+b1 f2+B1 b2 I2 W2");
}

TEST_CASE("stages lie in loops, in V's or in both directions", "[planner][pipeline]") {
  using Stages = std::vector<std::vector<std::int32_t>>;
  CHECK(build_schedule(shape(kInterleaved, 3, 3)).stage_of == Stages{{0, 3}, {1, 4}, {2, 5}});
  CHECK(build_schedule(shape(kZeroBubbleV, 3, 3)).stage_of == Stages{{0, 5}, {1, 4}, {2, 3}});
  CHECK(build_schedule(shape(kWave, 2, 2, 4)).stage_of == Stages{{0, 3, 4, 7}, {1, 2, 5, 6}});
  const Schedule both = build_schedule(shape(kDualPipe, 2, 4));
  CHECK(both.stage_of == Stages{{0, 1}, {1, 0}});
  CHECK(both.place_of(0, 1) == StagePlace{0, 0});
  CHECK(both.place_of(0, 2) == StagePlace{1, 1});
  CHECK(both.bidirectional);
}

TEST_CASE("a pass knows whose output it reads", "[planner][pipeline]") {
  const Schedule v = build_schedule(shape(kZeroBubbleV, 2, 3));
  CHECK(!source_of(v, 0, {PassKind::kForward, 0, 0}));
  CHECK(source_of(v, 1, {PassKind::kForward, 1, 0}) == StagePlace{1, 0});  // The turn: no message.
  CHECK(source_of(v, 0, {PassKind::kBackwardInput, 0, 0}) == StagePlace{1, 0});
  CHECK(!source_of(v, 0, {PassKind::kBackwardInput, 1, 0}));  // The last stage.
  CHECK(destination_of(v, 0, {PassKind::kBackwardInput, 1, 0}) == StagePlace{1, 1});
  CHECK(!destination_of(v, 0, {PassKind::kBackwardWeight, 1, 0}));
}

TEST_CASE("messages per micro-batch follow from the placement", "[planner][pipeline]") {
  // p = 4, m = 8. One chunk: 2(p − 1); looped: 2(vp − 1); V: 4(p − 1), the turn is free; two waves: 2(4p − 1)
  // less three turns each way; DualPipe: 2(p − 1).
  CHECK(message_count(build_schedule(shape(kOneForwardOneBackward, 4, 8))) == 8 * 6);
  CHECK(message_count(build_schedule(shape(kInterleaved, 4, 8))) == 8 * 14);
  CHECK(message_count(build_schedule(shape(kLoopedBfs, 4, 8, 3))) == 8 * 22);
  CHECK(message_count(build_schedule(shape(kZeroBubbleV, 4, 8))) == 8 * 12);
  CHECK(message_count(build_schedule(shape(kDualPipeV, 4, 8))) == 8 * 12);
  CHECK(message_count(build_schedule(shape(kWave, 4, 8, 4))) == 8 * (30 - 6));
  CHECK(message_count(build_schedule(shape(kDualPipe, 4, 8))) == 8 * 6);
}

TEST_CASE("the default group leaves no dependency bubble", "[planner][pipeline]") {
  CHECK(default_group(4, 8) == 4);
  CHECK(default_group(4, 6) == 6);   // 4 leaves 2 and 5 leaves 1, both below 4.
  CHECK(default_group(4, 10) == 5);  // PyTorch: 10 / ⌊10/4⌋ = 5.
  CHECK(default_group(4, 11) == 6);  // Groups of 6 and 5.
  CHECK(default_group(8, 3) == 3);
  for (std::int32_t ranks = 1; ranks <= 12; ++ranks) {
    for (std::int32_t microbatches = ranks; microbatches <= 60; ++microbatches) {
      const std::int32_t rounds = microbatches / ranks;
      if (microbatches % rounds == 0) CHECK(default_group(ranks, microbatches) == microbatches / rounds);
    }
  }
}

TEST_CASE("a schedule that can't be says why and what can", "[planner][pipeline]") {
  const auto fault = [](const ScheduleShape& wanted) { return schedule_fault(wanted); };
  CHECK(has(fault(shape(kOneForwardOneBackward, 0, 4)), "ranks is 0, expected at least 1"));
  CHECK(has(fault(shape(kOneForwardOneBackward, 4, -2)), "micro-batches is -2, expected at least 1"));
  CHECK(has(fault(shape(kOneForwardOneBackward, 4, 4, 2)), "2 chunks per rank, expected 1"));
  CHECK(has(fault(shape(kZeroBubbleV, 4, 8, 3)), "3 chunks per rank, expected exactly 2"));
  CHECK(has(fault(shape(kInterleaved, 4, 8, 1)), "expected at least 2; with 1 chunk use 1f1b"));
  CHECK(has(fault(shape(kWave, 4, 8, 3)), "nearest: 2 and 4"));
  CHECK(has(fault(shape(kDualPipe, 5, 12)),
            "5 ranks, expected an even number, half for each direction; nearest: 4 and 6"));
  CHECK(has(fault(shape(kDualPipe, 4, 6)),
            "6 micro-batches, expected at least 2 per rank to fill both ends; nearest: 8"));
  CHECK(has(fault(shape(kDualPipe, 4, 9)), "nearest: 8 and 10"));
  CHECK(has(fault(shape(kDualPipeV, 4, 7)), "nearest: 8"));
  CHECK(has(fault(shape(kOneForwardOneBackward, 2'000'000'000, 4)), "expected at most 4096"));
  CHECK(has(fault(shape(kInterleaved, 4096, 2'000'000'000, 2'000'000'000)), "are more than 16777216 passes"));
  ScheduleShape list = shape(kList, 2, 4, 2);
  list.memory_cap = 1;
  CHECK(has(fault(list), "a memory cap of 1 chunk activations holds no micro-batch, expected at least 2"));
  list.memory_cap = 0;
  list.times = StageTimes{{1, 1}, {1, 1}, {1, 1}, 0, {}};
  CHECK(has(fault(list), "times of 2 virtual stages, expected 4 (2 ranks with 2 chunks)"));
  list.times = StageTimes{{1, 1, 1, 1}, {1, 1, 1, -1}, {1, 1, 1, 1}, 0, {}};
  CHECK(has(fault(list), "a stage time of -1"));
}

TEST_CASE("interleaved groups whose last one is too small are refused where they deadlock",
          "[planner][pipeline]") {
  ScheduleShape wanted = shape(kInterleaved, 8, 12);
  wanted.group = 8;  // The last group has 4.
  const std::string fault = schedule_fault(wanted);
  CHECK(has(fault,
            "a last group of 4 (groups of 8 in 12 micro-batches) on 8 ranks end in a deadlock: rank 0 at "));
  CHECK(has(fault, "groups that work: 12"));
  const std::vector<std::string> faults = verify(assemble(with_defaults(wanted)));
  REQUIRE(faults.size() == 1);
  CHECK(has(faults[0], "passes wait for each other: rank 0 at "));
  wanted.group = 12;
  CHECK(schedule_fault(wanted).empty());
  // p = 4, m = 6, g = 4 only has dependency bubbles, so it is allowed.
  wanted = shape(kInterleaved, 4, 6);
  wanted.group = 4;
  CHECK(schedule_fault(wanted).empty());
}

TEST_CASE("verify tells what is wrong with an order", "[planner][pipeline]") {
  const Schedule good = build_schedule(shape(kOneForwardOneBackward, 2, 2));
  CHECK(verify(good).empty());

  Schedule bad = good;
  bad.passes[0][1] = bad.passes[0][0];  // F0 twice, F1 never.
  CHECK(verify(bad) ==
        std::vector<std::string>{"rank 0: F0 is there more than once", "rank 0: F1 is missing"});

  bad = good;
  bad.passes[1][1].kind = PassKind::kBackwardInput;
  CHECK(verify(bad) == std::vector<std::string>{"rank 1: W0 is missing"});

  bad = good;
  bad.passes[1][0].microbatch = 7;
  bad.passes[1][1].chunk = -1;
  CHECK(verify(bad).size() == 4);  // Two out of range, and what they stood for is missing.

  bad = good;
  bad.passes[0][0].overlaps_next = true;  // F0 and F1.
  CHECK(verify(bad) ==
        std::vector<std::string>{
            "rank 0: F0 overlaps the next pass, which has to be a backward of other activations"});

  bad = good;
  std::swap(bad.passes[1][0], bad.passes[1][1]);  // B0 before F0.
  CHECK(verify(bad) ==
        std::vector<std::string>{"passes wait for each other: rank 0 at B0, after rank 1's B0; "
                                 "rank 1 at B0 before its own F0"});
}

TEST_CASE("one queue for both neighbours deadlocks a V, one per neighbour doesn't", "[planner][pipeline]") {
  const Schedule v = build_schedule(shape(kZeroBubbleV, 4, 6));
  CHECK(verify(v, {true, 0}).empty());
  CHECK(verify(v, {true, 1}).empty());
  const std::vector<std::string> faults = verify(v, {false, 1});
  REQUIRE(faults.size() == 1);
  CHECK(has(faults[0], "messages block each other: rank 0 at f") == false);
  CHECK(has(faults[0], "messages block each other: rank 0 at F"));
  CHECK(verify(build_schedule(shape(kOneForwardOneBackward, 4, 6)), {false, 0}).empty());
}

TEST_CASE("receives are posted one pass ahead, in the sender's order", "[planner][pipeline]") {
  // Rank 1 of 2: F0 B0 F1 B1. Its forwards' inputs come from rank 0.
  const Schedule schedule = build_schedule(shape(kOneForwardOneBackward, 2, 2));
  using Plan = std::vector<std::vector<std::int32_t>>;
  CHECK(receive_plan(schedule, 0)[1] == Plan{{0}, {}, {2}, {}});
  CHECK(receive_plan(schedule, 1)[1] == Plan{{0}, {2}, {}, {}});
  // Rank 0: F0 F1 B0 B1.
  CHECK(receive_plan(schedule, 1)[0] == Plan{{}, {2}, {3}, {}});
  // Rank 0 sends f0 (chunk 1) before F1 here, and rank 1 reads F1 first: it takes in f0 with it.
  Schedule crossed = build_schedule(shape(kLoopedBfs, 2, 2));
  const auto pass = [](PassKind kind, std::int32_t chunk, std::int32_t k) { return Pass{kind, chunk, k}; };
  constexpr auto F = PassKind::kForward;
  constexpr auto B = PassKind::kBackward;
  crossed.passes[0] = {pass(F, 0, 0), pass(F, 1, 0), pass(F, 0, 1), pass(F, 1, 1),
                       pass(B, 1, 0), pass(B, 1, 1), pass(B, 0, 0), pass(B, 0, 1)};
  crossed.passes[1] = {pass(F, 0, 0), pass(F, 0, 1), pass(F, 1, 0), pass(F, 1, 1),
                       pass(B, 1, 0), pass(B, 1, 1), pass(B, 0, 0), pass(B, 0, 1)};
  CHECK(receive_plan(crossed, 0)[1] == Plan{{0}, {2, 1}, {}, {3}, {}, {}, {6}, {7}});
  CHECK(verify(crossed).empty());
}

}  // namespace orrery

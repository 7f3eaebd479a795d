#include <catch2/catch.hpp>

#include "base/random.hpp"
#include "report/metrics.hpp"

namespace orrery {
namespace {

using namespace time_literals;

// Spans in the order of (role, instruction), one class per role, whatever stream they stand on.
struct Times {
  SimTime start, ready, end;
};

Timeline timeline_of(const Program& program, SimTime step_time,
                     const std::vector<std::vector<Times>>& times) {
  Timeline timeline;
  timeline.step_time = step_time;
  timeline.makespan = step_time;
  for (std::size_t role = 0; role < times.size(); ++role) {
    RankClass& of = timeline.classes.emplace_back();
    of.role = RoleId(static_cast<std::int64_t>(role));
    for (std::size_t rank = 0; rank < program.role_of.size(); ++rank) {
      if (program.role_of[rank] == of.role) of.ranks.emplace_back(static_cast<std::int64_t>(rank));
    }
    for (std::size_t i = 0; i < times[role].size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      timeline.spans.push_back({static_cast<std::int32_t>(role), program.roles[role].instructions[i].stream,
                                index, index, times[role][i].start, times[role][i].ready,
                                times[role][i].end});
    }
  }
  return timeline;
}

Times compute(SimTime start, SimTime end) { return {start, start, end}; }

double moving(const StepShares& shares, Purpose purpose) {
  return shares.moving_s[static_cast<std::size_t>(purpose)];
}
double waiting(const StepShares& shares, Purpose purpose) {
  return shares.waiting_s[static_cast<std::size_t>(purpose)];
}

void check_sum(const StepShares& shares) {
  CHECK(shares.compute_s + shares.exposed_s() + shares.bubble_s == Approx(shares.step_s).epsilon(1e-12));
}

TEST_CASE("communication is exposed where nothing computes", "[metrics]") {
  const Program program = parse_program(
      "role a (ranks 0-1): f = compute 10us\n"
      "                    c = all-reduce 1MB for gradient-reduce after f\n"
      "                    g = compute 10us after f\n");
  // f 0..10, c waits 10..14 and moves 14..26, g 10..20: of c, 20..26 is exposed; 26..30 is the bubble.
  const Timeline timeline =
      timeline_of(program, 30_us, {{compute(0_us, 10_us), {10_us, 14_us, 26_us}, compute(10_us, 20_us)}});
  const StepShares shares = step_shares(program, timeline);
  CHECK(shares.step_s == Approx(30e-6));
  CHECK(shares.compute_s == Approx(20e-6));
  CHECK(moving(shares, Purpose::kGradientReduce) == Approx(6e-6));
  CHECK(waiting(shares, Purpose::kGradientReduce) == 0);
  CHECK(shares.bubble_s == Approx(4e-6));
  CHECK(shares.fraction(shares.bubble_s) == Approx(4.0 / 30.0));
  check_sum(shares);

  const std::vector<Activity> all = activities(program, timeline);
  REQUIRE(all.size() == 1);
  CHECK(all[0].compute.intervals() == std::vector<Interval>{{0_us, 20_us}});
  CHECK(all[0].waiting[static_cast<std::size_t>(Purpose::kGradientReduce)].length() == 4_us);
}

TEST_CASE("waiting within a role is exposed, waiting for another role is bubble", "[metrics]") {
  const Program program = parse_program(
      "axis all [0-3]\naxis tp [0-1] [2-3]\n"
      "role a (ranks 0-1): f = compute 10us; s = send 1MB to +2 in all for pipeline after f\n"
      "                    t = all-reduce 1MB in tp for tensor-parallel after s\n"
      "                    n = all-reduce 4B in all for gradient-reduce after t\n"
      "role b (ranks 2-3): r = recv 1MB from -2 in all for pipeline\n"
      "                    t = all-reduce 1MB in tp for tensor-parallel after r\n"
      "                    n = all-reduce 4B in all for gradient-reduce after t\n");
  // a: f 0..10, s 10..20, t waits to 25 and moves to 30, n waits for b to 45, moves to 50.
  // b: r waits to 10, moves to 20; t waits to 22, moves to 45; n 45..50.
  const Timeline timeline = timeline_of(
      program, 50_us,
      {{compute(0_us, 10_us), {10_us, 10_us, 20_us}, {20_us, 25_us, 30_us}, {30_us, 45_us, 50_us}},
       {{0_us, 10_us, 20_us}, {20_us, 22_us, 45_us}, {45_us, 45_us, 50_us}}});
  const StepShares shares = step_shares(program, timeline);
  CHECK(shares.compute_s == Approx(5e-6));
  CHECK(moving(shares, Purpose::kPipeline) == Approx(10e-6));
  CHECK(waiting(shares, Purpose::kPipeline) == 0);
  CHECK(moving(shares, Purpose::kTensorParallel) == Approx((5e-6 + 23e-6) / 2));
  CHECK(waiting(shares, Purpose::kTensorParallel) == Approx((5e-6 + 2e-6) / 2));
  CHECK(moving(shares, Purpose::kGradientReduce) == Approx(5e-6));
  CHECK(waiting(shares, Purpose::kGradientReduce) == 0);
  CHECK(shares.bubble_s == Approx((15e-6 + 10e-6) / 2));
  check_sum(shares);
}

TEST_CASE("a moment counts for one purpose, the more direct one", "[metrics]") {
  const Program program = parse_program(
      "role a (ranks 0-1): d = all-reduce 1MB for gradient-reduce on dp\n"
      "                    t = all-reduce 1MB for tensor-parallel on tp\n");
  // d moves 0..20; t waits 5..10 and moves 10..15.
  const StepShares shares =
      step_shares(program, timeline_of(program, 20_us, {{{0_us, 0_us, 20_us}, {5_us, 10_us, 15_us}}}));
  CHECK(waiting(shares, Purpose::kTensorParallel) == Approx(5e-6));
  CHECK(moving(shares, Purpose::kTensorParallel) == Approx(5e-6));
  CHECK(moving(shares, Purpose::kGradientReduce) == Approx(10e-6));
  check_sum(shares);
}

TEST_CASE("classes weigh as many ranks as they have", "[metrics]") {
  const Program program =
      parse_program("role a (ranks 0-2): f = compute 10us\nrole b (ranks 3): f = compute 30us\n");
  const StepShares shares =
      step_shares(program, timeline_of(program, 40_us, {{compute(0_us, 10_us)}, {compute(0_us, 30_us)}}));
  CHECK(shares.compute_s == Approx((3 * 10e-6 + 30e-6) / 4));
  check_sum(shares);
}

// 1F1B over p equal stages and m micro-batches, forward and backward of one unit each, no communication
// cost: backward of micro-batch i on stage s ends where the textbook diagram puts it.
TEST_CASE("one isolated 1F1B step has a bubble of (p-1)/(m+p-1)", "[metrics]") {
  const auto [p, m] = GENERATE(std::pair{2, 2}, std::pair{4, 8}, std::pair{3, 16});
  std::string text;
  std::vector<std::vector<Times>> times(static_cast<std::size_t>(p));
  for (int s = 0; s < p; ++s) {
    text += "role s" + std::to_string(s) + " (ranks " + std::to_string(s) + "):\n";
    for (int i = 0; i < m; ++i) {
      // Warm-up forwards run back to back; after them a forward waits for the backward p − s earlier.
      const int forward = i < p - s ? s + i : 2 * i + s;
      const int backward = 2 * p - 1 - s + 2 * i;
      const auto unit = [](int t) { return t * 1_us; };
      text += "f.m" + std::to_string(i) + " = compute 1us\nb.m" + std::to_string(i) + " = compute 1us\n";
      times[static_cast<std::size_t>(s)].push_back(compute(unit(forward), unit(forward + 1)));
      times[static_cast<std::size_t>(s)].push_back(compute(unit(backward), unit(backward + 1)));
    }
  }
  const Program program = parse_program(text);
  const SimTime makespan = (2 * (m + p - 1)) * 1_us;
  const StepShares isolated = step_shares(program, timeline_of(program, makespan, times));
  CHECK(isolated.fraction(isolated.bubble_s) == Approx(static_cast<double>(p - 1) / (m + p - 1)));
  check_sum(isolated);
}

TEST_CASE("interlocking steps have no bubble where the isolated step has one", "[metrics]") {
  const Program program =
      parse_program("role a (ranks 0): f = compute 10us\nrole b (ranks 1): f = compute 10us\n");
  const std::vector<std::vector<Times>> times = {{compute(0_us, 10_us)}, {compute(10_us, 20_us)}};
  CHECK(step_shares(program, timeline_of(program, 20_us, times)).bubble_s == Approx(10e-6));
  // b works on one step while a works on the next.
  CHECK(step_shares(program, timeline_of(program, 10_us, times)).bubble_s == 0);
}

TEST_CASE("a step that overlaps the one before folds into its period", "[metrics]") {
  const Program program =
      parse_program("role a (ranks 0): f = compute 10us; c = all-gather 1MB for parameter-gather\n");
  Timeline timeline = timeline_of(program, 20_us, {{compute(95_us, 105_us), {112_us, 113_us, 118_us}}});
  timeline.step_start = 100_us;
  const StepShares shares = step_shares(program, timeline);
  // The compute began before the step: 100..105 here and 115..120 from the step after this one.
  CHECK(activities(program, timeline)[0].compute.intervals() ==
        std::vector<Interval>{{100_us, 105_us}, {115_us, 120_us}});
  CHECK(shares.compute_s == Approx(10e-6));
  CHECK(moving(shares, Purpose::kParameterGather) == Approx(2e-6));
  CHECK(waiting(shares, Purpose::kParameterGather) == Approx(1e-6));
  CHECK(shares.bubble_s == Approx(7e-6));
  check_sum(shares);
}

TEST_CASE("a timeline without time or spans has no shares", "[metrics]") {
  const Program program = parse_program("role a (ranks 0): f = compute 0us");
  CHECK(step_shares(program, Timeline{}).step_s == 0);
  const StepShares shares = step_shares(program, timeline_of(program, 0_us, {{compute(0_us, 0_us)}}));
  CHECK(shares.fraction(shares.bubble_s) == 0);
  CHECK(step_shares(program, timeline_of(program, 10_us, {{}})).bubble_s == Approx(10e-6));
}

TEST_CASE("shares sum to the step and agree with counting moments", "[metrics][property]") {
  const Program program = parse_program(
      "role a (ranks 0-3): f = compute 1us; g = compute 2us\n"
      "  t = all-reduce 1MB for tensor-parallel; s = send 1MB to next for pipeline; r = recv 1MB from "
      "previous\n"
      "  d = reduce-scatter 1MB for gradient-reduce on dp; c = copy 1MB to host\n");
  const std::vector<Instruction>& instructions = program.roles[0].instructions;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const std::int64_t period = random.between(1, 60);
    std::vector<Times> times;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const std::int64_t start = random.between(-40, 80);
      const std::int64_t wait = i < 2 ? 0 : random.between(0, 15);
      times.push_back({{start}, {start + wait}, {start + wait + random.between(0, 30)}});
    }
    Timeline timeline = timeline_of(program, {period}, {times});
    timeline.step_start = {random.between(0, 50)};
    const StepShares shares = step_shares(program, timeline);
    check_sum(shares);
    // By definition, picosecond by picosecond.
    std::int64_t busy = 0;
    std::int64_t bubble = 0;
    for (std::int64_t t = 0; t < period; ++t) {
      bool computes = false;
      bool communicates = false;
      for (std::size_t i = 0; i < times.size(); ++i) {
        const bool collective = std::holds_alternative<Collective>(instructions[i].work);
        const std::int64_t from = (collective ? times[i].start : times[i].ready).picoseconds;
        for (std::int64_t step = -130; step <= 130; ++step) {
          const std::int64_t moment = timeline.step_start.picoseconds + t + step * period;
          if (moment < from || moment >= times[i].end.picoseconds) continue;
          (i < 2 ? computes : communicates) = true;
        }
      }
      busy += computes ? 1 : 0;
      bubble += !computes && !communicates ? 1 : 0;
    }
    INFO("seed " << seed);
    CHECK(shares.compute_s == Approx(static_cast<double>(busy) * 1e-12));
    CHECK(shares.bubble_s == Approx(static_cast<double>(bubble) * 1e-12).margin(1e-20));
  }
}

}  // namespace
}  // namespace orrery

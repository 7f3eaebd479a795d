// Small cases whose every time can be checked by hand.

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "simulator/engine.hpp"
#include "tests/simulator/job_builder.hpp"

namespace orrery {
namespace {

using namespace time_literals;
using testing::JobBuilder;

constexpr std::int64_t kGBps = 1'000'000'000;

bool same(const Timeline& a, const Timeline& b) {
  return a.spans == b.spans && a.step_start == b.step_start && a.makespan == b.makespan &&
         a.step_time == b.step_time && a.steps == b.steps && a.settled == b.settled;
}

// By events; where one pass claims to be exact, it has to say the same.
Timeline run(const JobBuilder& builder, std::int32_t max_steps = 1) {
  EngineCounters counters;
  const Timeline any = run_fast(builder.job, {max_steps, false}, &counters);
  const Timeline by_events = run_fast(builder.job, {max_steps, true});
  CHECK(same(any, by_events));
  return by_events;
}

bool runs_in_one_pass(const JobBuilder& builder) {
  EngineCounters counters;
  run_fast(builder.job, {1, false}, &counters);
  return counters.one_pass;
}

Span span(const Timeline& timeline, std::int32_t rank_class, std::int32_t instruction) {
  for (const Span& one : timeline.spans)
    if (one.rank_class == rank_class && one.first == instruction) return one;
  FAIL("no such span");
  return {};
}

// Two classes A and B; a transfer between them on each one's stream 1.
struct Pair : JobBuilder {
  std::int32_t a = add_class();
  std::int32_t b = add_class();
  std::int32_t meet(std::int32_t transfer, const std::vector<Edge>& after_a = {},
                    const std::vector<Edge>& after_b = {}) {
    return add_rendezvous(transfer, {{a, 1, after_a}, {b, 1, after_b}});
  }
};

}  // namespace

TEST_CASE("a send starts when its compute ends, a receive waits for it", "[engine]") {
  Pair job;
  const std::int32_t link = job.add_link(100 * kGBps);
  // 1 MB at 100 GB/s takes 10 us, and latency adds 2 us.
  const std::int32_t transfer = job.add_transfer(2_us, 1'000'000, 100 * kGBps, {{link, 1}});
  job.add_compute(job.a, 10_us);
  job.meet(transfer, {{0, false}});
  job.add_compute(job.b, 10_us, {{0, false}});
  const Timeline timeline = run(job);
  CHECK(runs_in_one_pass(job));
  CHECK(span(timeline, 0, 0).end == 10_us);
  CHECK(span(timeline, 0, 1).start == 10_us);
  CHECK(span(timeline, 0, 1).end == 22_us);
  CHECK(span(timeline, 1, 0).start == 0_us);   // The receive holds its stream from the start,
  CHECK(span(timeline, 1, 0).ready == 10_us);  // and waits for the sender until here.
  CHECK(span(timeline, 1, 0).end == 22_us);
  CHECK(span(timeline, 1, 1).end == 32_us);
  CHECK(timeline.makespan == 32_us);
}

TEST_CASE("two flows share a link while both are there", "[engine]") {
  JobBuilder job;
  const std::int32_t link = job.add_link(100 * kGBps);
  const std::int32_t transfer = job.add_transfer(0_us, 1'000'000, 100 * kGBps, {{link, 1}});
  const std::int32_t a = job.add_class(), b = job.add_class();
  job.add_rendezvous(transfer, {{a, 1}});
  job.add_compute(b, 5_us);
  job.add_rendezvous(transfer, {{b, 1, {{0, false}}}});
  CHECK_FALSE(runs_in_one_pass(job));
  const Timeline timeline = run(job);
  // 0–5 us: half of A's megabyte. Then 50 GB/s each: A's other half takes 10 us. B, half done by then, has
  // the link to itself: 5 us more.
  CHECK(span(timeline, a, 0).end == 15_us);
  CHECK(span(timeline, b, 1).end == 20_us);
}

TEST_CASE("latency does not occupy a link", "[engine]") {
  JobBuilder job;
  const std::int32_t link = job.add_link(100 * kGBps);
  const std::int32_t now = job.add_transfer(0_us, 1'000'000, 100 * kGBps, {{link, 1}});
  const std::int32_t later = job.add_transfer(10_us, 1'000'000, 100 * kGBps, {{link, 1}});
  const std::int32_t a = job.add_class(), b = job.add_class();
  job.add_rendezvous(now, {{a, 1}});
  job.add_rendezvous(later, {{b, 1}});
  CHECK(runs_in_one_pass(job));  // One ends at 10 us, when the other begins to move bytes.
  const Timeline timeline = run(job);
  CHECK(span(timeline, a, 0).end == 10_us);
  CHECK(span(timeline, b, 0).end == 20_us);
}

TEST_CASE("what a capped flow leaves goes to the others", "[engine]") {
  JobBuilder job;
  const std::int32_t link = job.add_link(100 * kGBps);
  const std::int32_t slow = job.add_transfer(0_us, 1'000'000, 20 * kGBps, {{link, 1}});
  const std::int32_t fast = job.add_transfer(0_us, 4'000'000, 100 * kGBps, {{link, 1}});
  const std::int32_t a = job.add_class(), b = job.add_class();
  job.add_rendezvous(slow, {{a, 1}});
  job.add_rendezvous(fast, {{b, 1}});
  const Timeline timeline = run(job);
  CHECK(span(timeline, a, 0).end == 50_us);  // 1 MB at its 20 GB/s.
  CHECK(span(timeline, b, 0).end == 50_us);  // 4 MB at 80 GB/s.
}

TEST_CASE("a flow that stands for three takes three shares", "[engine]") {
  JobBuilder job;
  const std::int32_t link = job.add_link(100 * kGBps);
  const std::int32_t three = job.add_transfer(0_us, 1'000'000, 100 * kGBps, {{link, 3}});
  const std::int32_t one = job.add_transfer(0_us, 2'000'000, 100 * kGBps, {{link, 1}});
  const std::int32_t a = job.add_class(), b = job.add_class();
  job.add_rendezvous(three, {{a, 1}});
  job.add_rendezvous(one, {{b, 1}});
  const Timeline timeline = run(job);
  CHECK(span(timeline, a, 0).end == 40_us);  // 25 GB/s each.
  CHECK(span(timeline, b, 0).end == 50_us);  // 1 MB of its 2 by 40 us, the rest at 100 GB/s.
}

TEST_CASE("a link moves its bytes in bytes over bandwidth, however many share it", "[engine]") {
  JobBuilder job;
  const std::int32_t link = job.add_link(10 * kGBps);
  std::int64_t bytes = 0;
  for (std::int64_t i = 1; i <= 20; ++i) {
    bytes += i * 70'001;
    const std::int32_t transfer = job.add_transfer(0_us, i * 70'001, 10 * kGBps, {{link, 1}});
    job.add_rendezvous(transfer, {{job.add_class(), 1}});
  }
  // Each of the 20 ends rounds up by less than a picosecond.
  const double exact = static_cast<double>(bytes) / 10e9;
  CHECK(run(job).makespan.seconds() == Approx(exact).margin(21e-12));
  CHECK(run(job).makespan.seconds() >= exact);
}

TEST_CASE("an active transfer slows compute, mid-way", "[engine]") {
  Pair job;
  job.job.compute_interference = 2.0;
  const std::int32_t link = job.add_link(100 * kGBps);
  const std::int32_t transfer = job.add_transfer(1_us, 300'000, 100 * kGBps, {{link, 1}});
  job.add_compute(job.a, 10_us);
  job.add_compute(job.b, 3_us);
  job.meet(transfer, {}, {{0, false}});
  CHECK_FALSE(runs_in_one_pass(job));
  const Timeline timeline = run(job);
  // The transfer lasts from 3 to 7 us. A: 3 us at full speed, 4 us at half (2 us of work), 5 us at full.
  CHECK(span(timeline, 0, 1).end == 7_us);
  CHECK(span(timeline, 0, 0).end == 12_us);
}

TEST_CASE("compute slows an active transfer, mid-way", "[engine]") {
  for (const bool over_shared_link : {false, true}) {
    Pair job;
    job.job.transfer_interference = 2.0;
    const std::int32_t link = job.add_link(100 * kGBps);
    const std::int32_t transfer =
        job.add_transfer(0_us, 400'000, 100 * kGBps, {{link, over_shared_link ? 2 : 1}});
    job.add_compute(job.a, 10_us);
    job.add_compute(job.b, 3_us);
    job.meet(transfer, {}, {{0, false}});
    const Timeline timeline = run(job);
    CHECK(span(timeline, 0, 0).end == 10_us);
    // From 3 us on at half rate: 350 kB of 400 by 10 us, then the rest at full rate takes 0.5 us. Where two
    // share the link they have 50 GB/s each from the start, and 8 us are enough.
    CHECK(span(timeline, 0, 1).end == (over_shared_link ? 11_us : 10'500_ns));
  }
}

TEST_CASE("compute and transfer slow each other", "[engine]") {
  Pair job;
  job.job.compute_interference = 2.0;
  job.job.transfer_interference = 2.0;
  const std::int32_t transfer = job.add_transfer(0_us, 400'000, 100 * kGBps, {});
  job.add_compute(job.a, 10_us);
  job.add_compute(job.b, 3_us);
  job.meet(transfer, {}, {{0, false}});
  const Timeline timeline = run(job);
  CHECK(span(timeline, 0, 1).end == 11_us);  // 3 us + 4 us at half rate.
  CHECK(span(timeline, 0, 0).end == 14_us);  // 3 + 8 at half speed + 3.
}

TEST_CASE("interference that never meets is no interference", "[engine]") {
  Pair job;
  job.job.compute_interference = 1.23;
  job.job.transfer_interference = 1.9;
  const std::int32_t transfer = job.add_transfer(1_us, 400'000, 100 * kGBps, {});
  job.add_compute(job.a, 10_us);
  job.meet(transfer, {{0, false}});
  job.add_compute(job.b, 3_us, {{0, false}});
  CHECK(runs_in_one_pass(job));
  CHECK(run(job).makespan == 18_us);
}

TEST_CASE("a device runs one compute at a time, the higher stream first, without preemption", "[engine]") {
  JobBuilder job;
  const std::int32_t a = job.add_class({0, 7});
  job.add_compute(a, 10_us, {}, 0);           // low 0
  job.add_compute(a, 5_us, {}, 1);            // high 1
  job.add_compute(a, 10_us, {}, 0);           // low 2
  job.add_compute(a, 5_us, {{0, false}}, 1);  // high 3, when low 0 has ended
  const Timeline timeline = run(job);
  CHECK(span(timeline, a, 1).start == 0_us);
  CHECK(span(timeline, a, 0).start == 5_us);
  CHECK(span(timeline, a, 3).start == 15_us);
  CHECK(span(timeline, a, 2).start == 20_us);
  CHECK(timeline.makespan == 30_us);
}

TEST_CASE("equal priorities run in program order", "[engine]") {
  JobBuilder job;
  const std::int32_t a = job.add_class({0, 0});
  job.add_compute(a, 1_us, {}, 1);
  job.add_compute(a, 2_us, {}, 0);
  const Timeline timeline = run(job);
  CHECK(span(timeline, a, 0).start == 0_us);
  CHECK(span(timeline, a, 1).start == 1_us);
}

TEST_CASE("a compute without work waits for its turn too", "[engine]") {
  JobBuilder job;
  const std::int32_t a = job.add_class({0, 7});
  job.add_compute(a, 0_us, {}, 0);
  job.add_compute(a, 5_us, {}, 1);
  CHECK_FALSE(runs_in_one_pass(job));
  CHECK(span(run(job), a, 0).start == 5_us);
}

TEST_CASE("streams that take turns need no events", "[engine]") {
  JobBuilder job;
  const std::int32_t a = job.add_class({0, 0});
  job.add_compute(a, 1_us, {}, 0);
  job.add_compute(a, 2_us, {{0, false}}, 1);
  job.add_compute(a, 3_us, {{1, false}, {1, true}}, 0);
  CHECK(runs_in_one_pass(job));
  CHECK(run(job).makespan == 6_us);
}

TEST_CASE("a gather hides in the step before unless @prev forbids it", "[engine]") {
  for (const bool wait_for_previous : {false, true}) {
    JobBuilder job;
    const std::int32_t a = job.add_class();
    const std::int32_t gather = job.add_transfer(1_us, 500'000, 100 * kGBps, {});
    std::vector<Edge> after;
    if (wait_for_previous) after.push_back({1, true});
    job.add_rendezvous(gather, {{a, 1, after}});  // 6 us
    job.add_compute(a, 10_us, {{0, false}});
    const Timeline timeline = run(job, 16);
    CHECK(timeline.makespan == 16_us);
    CHECK(timeline.step_time == (wait_for_previous ? 16_us : 10_us));
    CHECK(timeline.settled);
    CHECK(timeline.steps == 3);
    CHECK(timeline.step_start == (wait_for_previous ? 32_us : 26_us));
    CHECK(span(timeline, a, 0).start == (wait_for_previous ? 32_us : 12_us));
  }
}

TEST_CASE("the host launches one instruction after another and goes on across steps", "[engine]") {
  JobBuilder job;
  job.job.launch = 2_us;
  const std::int32_t a = job.add_class();
  for (int i = 0; i < 3; ++i) job.add_compute(a, 1_us);
  const Timeline timeline = run(job, 16);
  CHECK(timeline.makespan == 7_us);  // Launched at 2, 4 and 6 us.
  CHECK(timeline.step_time == 6_us);
}

TEST_CASE("too few steps are said to be too few", "[engine]") {
  JobBuilder job;
  job.add_compute(job.add_class(), 1_us);
  for (const std::int32_t max_steps : {1, 2}) {
    const Timeline timeline = run(job, max_steps);
    CHECK_FALSE(timeline.settled);
    CHECK(timeline.steps == max_steps);
    CHECK(timeline.step_time == 1_us);
  }
  CHECK(run(job, 3).settled);
}

TEST_CASE("ranks that wait for each other are named", "[engine]") {
  Pair job;
  const std::int32_t transfer = job.add_transfer(1_us, 1, kGBps, {});
  // A posts the first meeting before the second, B the other way round.
  const std::int32_t a0 = job.add_open({job.a, 1}), b0 = job.add_open({job.b, 1});
  const std::int32_t a1 = job.add_open({job.a, 1}), b1 = job.add_open({job.b, 1});
  job.add_compute(job.a, 1_us, {{a1, false}});
  job.set_rendezvous(transfer, {{job.a, a0}, {job.b, b1}});
  job.set_rendezvous(transfer, {{job.a, a1}, {job.b, b0}});
  for (const bool force_events : {false, true}) {
    std::string message;
    try {
      run_fast(job.job, {4, force_events});
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kInfeasible);
      message = error.what();
    }
    CHECK_THAT(message, Catch::Contains("rank 0: 'i.m0' waits for rank 1 to reach 'i.m1'"));
    CHECK_THAT(message, Catch::Contains("rank 1: 'i.m0' waits for rank 0 to reach 'i.m1'"));
    CHECK_THAT(message, Catch::Contains("rank 0: 'i.m2' waits for 'i.m1'"));
  }
}

TEST_CASE("a job without instructions ends at once", "[engine]") {
  JobBuilder job;
  job.add_class();
  CHECK(run(job, 8).makespan == 0_us);
  CHECK(run(JobBuilder(), 8).spans.empty());
}

TEST_CASE("a link that gives next to nothing is an error, not a wrong date", "[engine]") {
  JobBuilder job;
  const std::int32_t link = job.add_link(0);
  const std::int32_t transfer = job.add_transfer(0_us, 1'000'000'000, kGBps, {{link, 1}});
  job.add_rendezvous(transfer, {{job.add_class(), 1}});
  CHECK_THROWS_AS(run_fast(job.job), Error);
}

namespace {

struct Turn {
  bool forward = true;
  std::size_t microbatch = 0;
};

// p − 1 − s forwards, then one forward and one backward in turn, then the backwards that are left.
std::vector<Turn> one_forward_one_backward(std::size_t stage, std::size_t stages, std::size_t microbatches) {
  std::vector<Turn> turns;
  const std::size_t warm_up = std::min(stages - 1 - stage, microbatches);
  for (std::size_t m = 0; m < warm_up; ++m) turns.push_back({true, m});
  for (std::size_t m = 0; m < microbatches; ++m) {
    if (warm_up + m < microbatches) turns.push_back({true, warm_up + m});
    turns.push_back({false, m});
  }
  return turns;
}

// Transfers take no time. Streams: compute, then receives and sends of activations and of gradients.
JobBuilder pipeline(std::size_t stages, std::size_t microbatches, SimTime forward, SimTime backward) {
  JobBuilder job;
  const std::int32_t instant = job.add_transfer({}, 0, 0, {});
  // By direction (1: forward), stage and micro-batch: the instruction that sends or receives.
  using Table = std::vector<std::vector<std::int32_t>>;
  const Table none(stages, std::vector<std::int32_t>(microbatches, -1));
  Table received[] = {none, none}, sent[] = {none, none};
  for (std::size_t s = 0; s < stages; ++s) {
    const std::int32_t stage = job.add_class({0, 0, 0, 0, 0});
    for (const auto& [is_forward, m] : one_forward_one_backward(s, stages, microbatches)) {
      const bool first = s == (is_forward ? 0 : stages - 1), last = s == (is_forward ? stages - 1 : 0);
      std::vector<Edge> after;
      if (!first) {
        received[is_forward][s][m] = job.add_open({stage, is_forward ? 1 : 3});
        after.push_back({received[is_forward][s][m], false});
      }
      const std::int32_t work = job.add_compute(stage, is_forward ? forward : backward, after);
      if (!last) sent[is_forward][s][m] = job.add_open({stage, is_forward ? 2 : 4, {{work, false}}});
    }
  }
  for (std::size_t s = 0; s + 1 < stages; ++s)
    for (std::size_t m = 0; m < microbatches; ++m) {
      const auto here = static_cast<std::int32_t>(s);
      job.set_rendezvous(instant, {{here, sent[1][s][m]}, {here + 1, received[1][s + 1][m]}});
      job.set_rendezvous(instant, {{here + 1, sent[0][s + 1][m]}, {here, received[0][s][m]}});
    }
  return job;
}

}  // namespace

TEST_CASE("1F1B of 4 stages and 8 micro-batches has the textbook bubble", "[engine]") {
  const JobBuilder job = pipeline(4, 8, 1_us, 2_us);
  const Timeline timeline = run(job, 16);
  CHECK(runs_in_one_pass(job));
  CHECK(timeline.makespan == 33_us);  // (m + p − 1)(F + B) = 11 · 3.
  // The first stage ends last and begins first: in a loop of such steps nothing overlaps.
  CHECK(timeline.step_time == 33_us);
}

}  // namespace orrery

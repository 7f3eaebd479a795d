// What has to hold for every Job.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "simulator/engine.hpp"
#include "tests/properties/engine_random_job.hpp"

namespace orrery {
namespace {

using testing::RandomJob;

bool same(const Timeline& a, const Timeline& b) {
  return a.spans == b.spans && a.step_start == b.step_start && a.makespan == b.makespan &&
         a.step_time == b.step_time && a.steps == b.steps && a.settled == b.settled;
}

struct Tally {
  int one_pass = 0;
  int by_events = 0;
};

void compare_modes(const Job& job, std::int32_t max_steps, Tally& tally) {
  EngineCounters counters;
  const Timeline any = run_fast(job, {max_steps, false}, &counters);
  ++(counters.one_pass ? tally.one_pass : tally.by_events);
  CHECK(same(any, run_fast(job, {max_steps, true})));
}

// Null for compute.
const Transfer* transfer_of(const Job& job, const Span& span) {
  const JobClass& rank_class = job.classes[static_cast<std::size_t>(span.rank_class)];
  const std::int32_t met = rank_class.rendezvous[static_cast<std::size_t>(span.first)];
  if (met < 0) return nullptr;
  return &job.transfers[static_cast<std::size_t>(job.rendezvous[static_cast<std::size_t>(met)].transfer)];
}

// All bytes of a link got through between the first and the last moment at which somebody used it.
void check_links(const Job& job, const Timeline& timeline) {
  struct Use {
    SimTime begin{std::numeric_limits<std::int64_t>::max()};
    SimTime end;
    double bytes = 0;
  };
  std::vector<Use> links(job.link_capacity.size());
  std::vector<char> seen(job.rendezvous.size(), 0);
  for (const Span& span : timeline.spans) {
    const Transfer* transfer = transfer_of(job, span);
    const JobClass& rank_class = job.classes[static_cast<std::size_t>(span.rank_class)];
    const std::int32_t met = rank_class.rendezvous[static_cast<std::size_t>(span.first)];
    if (transfer == nullptr || seen[static_cast<std::size_t>(met)]++) continue;
    for (std::int32_t u = transfer->links.begin; u < transfer->links.end; ++u) {
      const LinkUse& use = job.link_uses[static_cast<std::size_t>(u)];
      Use& link = links[static_cast<std::size_t>(use.link)];
      link.begin = std::min(link.begin, span.ready + transfer->latency);
      link.end = std::max(link.end, span.end);
      link.bytes += static_cast<double>(use.count) * static_cast<double>(transfer->bytes);
    }
  }
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (links[l].bytes == 0) continue;
    // A picosecond per transfer is rounding.
    const double seconds =
        (links[l].end - links[l].begin).seconds() + 1e-12 * static_cast<double>(seen.size());
    CHECK(links[l].bytes <= static_cast<double>(job.link_capacity[l]) * seconds);
  }
}

// `replicas` times the classes of `base`, with one link for all replicas where `shared`, else one each.
Job unfold(const Job& base, std::int32_t replicas, const std::vector<char>& shared) {
  Job unfolded = base;
  const auto size = [](const auto& vector) { return static_cast<std::int32_t>(vector.size()); };
  for (std::int32_t r = 1; r < replicas; ++r) {
    for (JobClass rank_class : base.classes) {
      for (std::int32_t& met : rank_class.rendezvous)
        if (met >= 0) met += r * size(base.rendezvous);
      unfolded.classes.push_back(rank_class);
    }
    for (Rendezvous meeting : base.rendezvous) {
      meeting.transfer += r * size(base.transfers);
      meeting.participants.begin += r * size(base.participants);
      meeting.participants.end += r * size(base.participants);
      unfolded.rendezvous.push_back(meeting);
    }
    for (Participant participant : base.participants) {
      participant.rank_class += r * size(base.classes);
      unfolded.participants.push_back(participant);
    }
    for (Transfer transfer : base.transfers) {
      transfer.links.begin += r * size(base.link_uses);
      transfer.links.end += r * size(base.link_uses);
      unfolded.transfers.push_back(transfer);
    }
    for (LinkUse use : base.link_uses) {
      if (!shared[static_cast<std::size_t>(use.link)]) use.link += r * size(base.link_capacity);
      unfolded.link_uses.push_back(use);
    }
    for (const std::int64_t capacity : base.link_capacity) unfolded.link_capacity.push_back(capacity);
  }
  return unfolded;
}

}  // namespace

TEST_CASE("one pass and events say the same, bit for bit, without contention", "[engine]") {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    const RandomJob random(seed, {false, seed % 2 == 0, 40});
    compare_modes(random.builder.job, 16, tally);
  }
  CHECK(tally.one_pass > 200);  // The others have computes on several streams.
}

TEST_CASE("one pass is only taken where nothing contends", "[engine]") {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    INFO("seed " << seed);
    // Few operations contend now and then; many always do.
    RandomJob random(seed, {true, seed % 2 == 0, static_cast<std::int32_t>(4 + seed % 24)});
    if (seed % 3 == 0) random.add_interference();
    compare_modes(random.builder.job, seed % 5 == 0 ? 2 : 16, tally);
  }
  CHECK(tally.one_pass > 50);
  CHECK(tally.by_events > 50);
}

TEST_CASE("no program is faster than its work, its transfers and its links", "[engine]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    RandomJob random(seed, {true, seed % 2 == 0, 40});
    if (seed % 2 == 0) random.add_interference();
    const Job& job = random.builder.job;
    const Timeline timeline = run_fast(job, {1, false});
    for (const JobClass& rank_class : job.classes) {
      SimTime work;
      for (const SimTime& one : rank_class.work) work += one;
      CHECK(timeline.makespan >= work);
    }
    for (const Span& span : timeline.spans) {
      const JobClass& rank_class = job.classes[static_cast<std::size_t>(span.rank_class)];
      const Transfer* transfer = transfer_of(job, span);
      CHECK(span.start <= span.ready);
      if (transfer == nullptr)
        CHECK(span.end - span.start >= rank_class.work[static_cast<std::size_t>(span.first)]);
      else
        CHECK(span.end - span.ready >= uncontended_time(*transfer));
    }
    check_links(job, timeline);
  }
}

TEST_CASE("a folded job runs like the ranks it stands for, bit for bit", "[engine]") {
  int contended = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    RandomJob random(seed, {true, seed % 2 == 0, 30});
    if (seed % 3 == 0) random.add_interference();
    const Job& base = random.builder.job;
    Random more(seed);
    const auto replicas = static_cast<std::int32_t>(more.between(2, 5));
    std::vector<char> shared;
    for (std::size_t l = 0; l < base.link_capacity.size(); ++l) shared.push_back(more.uniform() < 0.5);

    Job folded = base;
    for (LinkUse& use : folded.link_uses)
      if (shared[static_cast<std::size_t>(use.link)]) use.count *= replicas;
    EngineCounters counters;
    const Timeline all = run_fast(unfold(base, replicas, shared), {16, false}, &counters);
    const Timeline one = run_fast(folded, {16, false});
    contended += !counters.one_pass;
    CHECK(all.makespan == one.makespan);
    CHECK(all.step_time == one.step_time);
    CHECK(all.steps == one.steps);
    bool equal = all.spans.size() == one.spans.size() * static_cast<std::size_t>(replicas);
    for (std::size_t s = 0; equal && s < all.spans.size(); ++s) {
      Span span = all.spans[s];
      span.rank_class %= static_cast<std::int32_t>(base.classes.size());
      equal = span == one.spans[s % one.spans.size()];
    }
    CHECK(equal);
  }
  CHECK(contended > 50);
}

}  // namespace orrery

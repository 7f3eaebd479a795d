#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>

#include "base/random.hpp"
#include "simulator/max_min.hpp"

namespace orrery::fast {
namespace {

struct TestFlow {
  std::vector<LinkUse> uses;
  Rate cap = 0;
  bool alive = false;
};

// The textbook: raise all rates together until a link or a cap stops some of them; repeat.
std::vector<long double> naive_rates(const std::vector<std::int64_t>& capacity,
                                     const std::vector<TestFlow>& flows) {
  std::vector<long double> rates(flows.size(), 0.0L);
  std::vector<char> rises(flows.size());
  for (std::size_t f = 0; f < flows.size(); ++f) rises[f] = flows[f].alive;
  while (std::count(rises.begin(), rises.end(), 1) > 0) {
    long double rise = std::numeric_limits<long double>::infinity();
    std::vector<long double> left(capacity.size()), weight(capacity.size(), 0.0L);
    for (std::size_t l = 0; l < capacity.size(); ++l)
      left[l] = static_cast<long double>(capacity[l]) * kRatePerByte;
    for (std::size_t f = 0; f < flows.size(); ++f)
      for (const LinkUse& use : flows[f].uses) {
        if (!flows[f].alive) continue;
        left[static_cast<std::size_t>(use.link)] -= rates[f] * use.count;
        if (rises[f]) weight[static_cast<std::size_t>(use.link)] += use.count;
      }
    for (std::size_t l = 0; l < capacity.size(); ++l)
      if (weight[l] > 0) rise = std::min(rise, left[l] / weight[l]);
    for (std::size_t f = 0; f < flows.size(); ++f)
      if (rises[f]) rise = std::min(rise, static_cast<long double>(flows[f].cap) - rates[f]);
    std::vector<char> stops(flows.size(), 0);
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (!rises[f]) continue;
      rates[f] += rise;
      if (rates[f] >= static_cast<long double>(flows[f].cap) * (1 - 1e-15L)) stops[f] = 1;
      for (const LinkUse& use : flows[f].uses) {
        const auto l = static_cast<std::size_t>(use.link);
        const auto full = static_cast<long double>(capacity[l]) * kRatePerByte * 1e-15L;
        if (left[l] - rise * weight[l] <= full) stops[f] = 1;
      }
    }
    for (std::size_t f = 0; f < flows.size(); ++f)
      if (stops[f]) rises[f] = 0;
  }
  return rates;
}

TestFlow random_flow(Random& random, std::size_t links) {
  TestFlow flow;
  flow.alive = true;
  // Few distinct caps, so that many flows reach theirs together.
  flow.cap = random.between(1, 8) * 10'000'000'000 * kRatePerByte;
  const std::int64_t uses = random.between(0, 4);
  for (std::int64_t u = 0; u < uses; ++u) {
    const auto link = static_cast<std::int32_t>(random.between(0, static_cast<std::int64_t>(links) - 1));
    const bool known =
        std::any_of(flow.uses.begin(), flow.uses.end(), [&](const LinkUse& use) { return use.link == link; });
    if (!known) flow.uses.push_back({link, static_cast<std::int32_t>(random.between(1, 3))});
  }
  return flow;
}

// A solver that has seen no history has to find the very same rates.
void check_history(const MaxMin& solver, const std::vector<std::int64_t>& capacity,
                   const std::vector<TestFlow>& flows) {
  MaxMin fresh(capacity);
  for (std::size_t f = 0; f < flows.size(); ++f)
    if (flows[f].alive) fresh.add(static_cast<std::int32_t>(f), flows[f].uses, flows[f].cap);
  fresh.solve();
  for (std::size_t f = 0; f < flows.size(); ++f)
    if (flows[f].alive)
      CHECK(fresh.rate(static_cast<std::int32_t>(f)) == solver.rate(static_cast<std::int32_t>(f)));
}

void check_rates(MaxMin& solver, const std::vector<std::int64_t>& capacity,
                 const std::vector<TestFlow>& flows) {
  solver.solve();
  check_history(solver, capacity, flows);
  const std::vector<long double> expected = naive_rates(capacity, flows);
  double worst = 0;
  std::vector<Wide> used(capacity.size(), 0);
  for (std::size_t f = 0; f < flows.size(); ++f) {
    if (!flows[f].alive) continue;
    const Rate rate = solver.rate(static_cast<std::int32_t>(f));
    const auto error = (static_cast<long double>(rate) - expected[f]) / expected[f];
    worst = std::max(worst, static_cast<double>(error < 0 ? -error : error));
    for (const LinkUse& use : flows[f].uses)
      used[static_cast<std::size_t>(use.link)] += Wide{use.count} * rate;
  }
  CHECK(worst < 1e-9);
  for (std::size_t l = 0; l < capacity.size(); ++l) CHECK(used[l] <= Wide{capacity[l]} * kRatePerByte);
}

}  // namespace

TEST_CASE("rates are those of textbook progressive filling, through joins, leaves and new caps",
          "[max_min]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    std::vector<std::int64_t> capacity;
    const std::int64_t links = random.between(1, 12);
    for (std::int64_t l = 0; l < links; ++l) capacity.push_back(random.between(20, 400) * 1'000'000'000);
    MaxMin solver(capacity);
    std::vector<TestFlow> flows(static_cast<std::size_t>(random.between(1, 24)));
    for (int round = 0; round < 25; ++round) {
      const std::int64_t changes = random.between(1, 4);
      for (std::int64_t c = 0; c < changes; ++c) {
        const std::int64_t f = random.between(0, static_cast<std::int64_t>(flows.size()) - 1);
        TestFlow& flow = flows[static_cast<std::size_t>(f)];
        const auto id = static_cast<std::int32_t>(f);
        if (!flow.alive) {
          flow = random_flow(random, capacity.size());
          solver.add(id, flow.uses, flow.cap);
        } else if (random.uniform() < 0.5) {
          flow.alive = false;
          solver.remove(id);
        } else {
          flow.cap = random.between(1, 8) * 10'000'000'000 * kRatePerByte;
          solver.set_cap(id, flow.cap);
        }
      }
      check_rates(solver, capacity, flows);
    }
  }
}

TEST_CASE("a sum of equal flows and one flow of that count get the same rate, bit for bit", "[max_min]") {
  const std::vector<std::int64_t> capacity = {100'000'000'007, 70'000'000'001};
  MaxMin unfolded(capacity), folded(capacity);
  const std::vector<LinkUse> one = {{0, 1}}, seven = {{0, 7}}, both = {{0, 1}, {1, 1}},
                             both_three = {{0, 3}, {1, 3}};
  const Rate cap = 90'000'000'000 * kRatePerByte;
  for (std::int32_t f = 0; f < 7; ++f) unfolded.add(f, one, cap);
  for (std::int32_t f = 7; f < 10; ++f) unfolded.add(f, both, cap);
  folded.add(0, seven, cap);
  folded.add(1, both_three, cap);
  unfolded.solve();
  folded.solve();
  for (std::int32_t f = 0; f < 7; ++f) CHECK(unfolded.rate(f) == folded.rate(0));
  for (std::int32_t f = 7; f < 10; ++f) CHECK(unfolded.rate(f) == folded.rate(1));
}

TEST_CASE("a change reaches only what shares a full link with it", "[max_min]") {
  const std::vector<std::int64_t> capacity = {100, 100, 1'000'000};
  MaxMin solver(capacity);
  const std::vector<LinkUse> left = {{0, 1}, {2, 1}}, right = {{1, 1}, {2, 1}};
  const Rate cap = 80 * kRatePerByte;
  solver.add(0, left, cap);
  solver.add(1, left, cap);
  solver.add(2, right, cap);
  CHECK(solver.solve().size() == 3);
  solver.add(3, right, cap);
  const auto changed = solver.solve();  // Link 2 is far from full and couples nobody.
  std::vector<std::int32_t> ids(changed.begin(), changed.end());
  std::sort(ids.begin(), ids.end());
  CHECK(ids == std::vector<std::int32_t>{2, 3});
  CHECK(solver.rate(2) == 50 * kRatePerByte);
  solver.remove(3);
  CHECK(solver.solve().size() == 1);
  CHECK(solver.rate(2) == cap);
}

}  // namespace orrery::fast

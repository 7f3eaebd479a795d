// Faults drawn from rates: how many, how long, and the same every time.

#include "simulator/random_faults.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "tests/simulator/machines.hpp"

using namespace orrery;

namespace {

const Router& router() {
  static const Router kRouter(testing::cluster_of("dgx-h100", 8));
  return kRouter;
}

SimTime hours(double h) { return from_seconds(3600 * h); }

}  // namespace

TEST_CASE("the parts of a cluster are counted once each", "[random-faults]") {
  using enum Fault::What;
  CHECK(parts_of(kGpu, router()).size() == 64);
  CHECK(parts_of(kNic, router()).size() == 64);
  CHECK(parts_of(kNvLink, router()).size() == 64);
  CHECK(parts_of(kNode, router()).size() == 8);
  CHECK(parts_of(kLeaf, router()).size() == 8);  // A rail each.
}

TEST_CASE("faults come at their rate and last as long as their repair", "[random-faults]") {
  RandomFaults random;
  random.rates = {{Fault::What::kGpu, 0.5, 36, 0.25}};
  const std::vector<Fault> faults = draw_faults(random, router(), hours(100));
  // 64 GPUs · 0.5/h · 100 h = 3200, less those of GPUs under repair: 0.5/h · 0.01 h of each one's time.
  const double expected = 3200 / (1 + 0.5 * 0.01);
  CHECK(std::abs(static_cast<double>(faults.size()) - expected) < 4 * std::sqrt(expected));
  double sum_s = 0;
  SimTime last;
  std::set<RankId> ranks;
  for (const Fault& fault : faults) {
    CHECK(fault.from >= last);
    CHECK(fault.factor == 0.25);
    REQUIRE(fault.until);
    last = fault.from;
    sum_s += (*fault.until - fault.from).seconds();
    ranks.insert(fault.rank);
  }
  CHECK(last < hours(100));
  const double mean_s = sum_s / static_cast<double>(faults.size());
  CHECK(std::abs(mean_s - 36) < 4 * 36 / std::sqrt(expected));
  CHECK(ranks.size() == 64);
  // The gaps of a Poisson process: as much spread as their mean, 112.5 s.
  double squares = 0;
  for (std::size_t f = 1; f < faults.size(); ++f)
    squares += std::pow((faults[f].from - faults[f - 1].from).seconds() - 112.5, 2);
  CHECK(std::sqrt(squares / expected) == Approx(112.5).epsilon(0.1));
}

TEST_CASE("a seed says all, and kinds don't disturb each other", "[random-faults]") {
  RandomFaults random;
  random.rates = {{Fault::What::kNode, 1, 60, 0}};
  const std::vector<Fault> once = draw_faults(random, router(), hours(10));
  CHECK(once == draw_faults(random, router(), hours(10)));
  REQUIRE(once.size() > 20);
  random.rates.push_back({Fault::What::kNic, 1, 5, 0});
  std::vector<Fault> both = draw_faults(random, router(), hours(10));
  REQUIRE(both.size() > once.size());
  both.resize(once.size());
  CHECK(both == once);
  random.seed = 2;
  CHECK(draw_faults(random, router(), hours(10)) != both);
  // A longer run begins as the shorter one.
  random.seed = 1;
  random.rates.resize(1);
  std::vector<Fault> longer = draw_faults(random, router(), hours(20));
  longer.resize(once.size());
  CHECK(longer == once);
}

TEST_CASE("a part that is never repaired fails once", "[random-faults]") {
  RandomFaults random;
  random.rates = {{Fault::What::kNode, 1000, 0, 0}};
  const std::vector<Fault> faults = draw_faults(random, router(), hours(1));
  CHECK(faults.size() == 8);
  for (const Fault& fault : faults) CHECK_FALSE(fault.until);
  random.rates = {{Fault::What::kUplink, 1, 0, 0}};
  const Router one_node(testing::cluster_of("dgx-h100", 1));
  CHECK_THROWS_AS(draw_faults(random, one_node, hours(1)), Error);
}

// sim_time.hpp, ids.hpp, random.hpp and error.hpp: the small values everything else is made of.
#include <catch2/catch.hpp>

#include <set>
#include <type_traits>
#include <unordered_set>

#include "base/error.hpp"
#include "base/ids.hpp"
#include "base/random.hpp"
#include "base/sim_time.hpp"

using namespace orrery;
using namespace orrery::time_literals;

TEST_CASE("seconds become the nearest picosecond", "[base]") {
  CHECK(from_seconds(0.57e-6) == 570_ns);
  CHECK(from_seconds(1.4e-12) == 1_ps);
  CHECK(from_seconds(1.6e-12) == 2_ps);
  CHECK(from_seconds(-2e-6) == SimTime{} - 2_us);
  CHECK((3 * 10_us).seconds() == Approx(30e-6));
}

TEST_CASE("sums of times do not depend on their order", "[base]") {
  Random random(3);
  std::vector<SimTime> times(1'000);
  for (SimTime& time : times) time = from_seconds(random.uniform());
  SimTime forward, backward;
  for (std::size_t i = 0; i < times.size(); ++i) {
    forward += times[i];
    backward += times[times.size() - 1 - i];
  }
  CHECK(forward == backward);
  for (const SimTime time : times) forward -= time;
  CHECK(forward == SimTime{});
}

TEST_CASE("an id knows whether it names something, and which kind of thing", "[base]") {
  using OpLike = Id<struct OpLikeTag>;
  CHECK_FALSE(RankId().valid());
  CHECK(RankId(0).valid());
  CHECK(RankId(5).index() == 5);
  CHECK(RankId(2) < RankId(3));
  STATIC_REQUIRE_FALSE(std::is_convertible_v<RankId, OpLike>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<int, RankId>);
  CHECK(std::unordered_set<RankId>{RankId(1), RankId(1), RankId(2)}.size() == 2);
  CHECK(Range{2, 5}.size() == 3);
  CHECK(Range{4, 4}.empty());
}

TEST_CASE("random numbers are the same everywhere", "[base]") {
  // The first outputs of SplitMix64, as its authors publish it, from the state that our first call starts
  // with: each call adds the golden-ratio increment once to the state and once more inside the mix.
  const std::uint64_t seed = 1234567;
  CHECK(Random(seed - 0x9e3779b97f4a7c15ULL).next() == 6457827717110365317ULL);
  Random a(42), b(42);
  for (int i = 0; i < 100; ++i) CHECK(a.next() == b.next());
  CHECK(Random(1).next() != Random(2).next());
}

TEST_CASE("random ranges hold their ends and nothing beyond", "[base]") {
  Random random(9);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 1'000; ++i) {
    seen.insert(random.between(-2, 3));
    const double u = random.uniform();
    CHECK(u >= 0.0);
    CHECK(u < 1.0);
  }
  CHECK(seen == std::set<std::int64_t>{-2, -1, 0, 1, 2, 3});
}

TEST_CASE("an error carries its message and its exit code", "[base]") {
  try {
    fail(ErrorKind::kInput, "{}:{}: link joins unknown device", "dgx.yaml", 12);
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "dgx.yaml:12: link joins unknown device");
    CHECK(error.kind() == ErrorKind::kInput);
    CHECK(static_cast<int>(error.kind()) == 3);
  }
}

#include "simulator/event_engine_heap.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "base/random.hpp"

namespace orrery::fast {

TEST_CASE("the heap gives dates in order however they are moved", "[event_engine]") {
  Random random(3);
  DateHeap heap;
  heap.reserve_ids(50);
  std::map<std::int32_t, std::int64_t> expected;
  for (int round = 0; round < 5'000; ++round) {
    if (random.uniform() < 0.7) {
      const auto id = static_cast<std::int32_t>(random.between(0, 49));
      const std::int64_t date = random.between(0, 1'000);
      heap.set(id, date);
      expected[id] = date;
    } else if (!heap.empty()) {
      std::int64_t least = expected.begin()->second;
      for (const auto& [id, date] : expected) least = std::min(least, date);
      REQUIRE(heap.first_date() == least);
      const std::int32_t id = heap.pop();
      REQUIRE(expected.at(id) == least);
      expected.erase(id);
    }
    REQUIRE(heap.empty() == expected.empty());
  }
}

}  // namespace orrery::fast

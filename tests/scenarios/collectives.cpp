// The sections rings, collective and buckets of a scenario file, and what they refuse.

#include <catch2/catch.hpp>

#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

TEST_CASE("rings, collective and buckets are read", "[scenarios]") {
  const Scenario scenario = parse_small(
      {"rings={order: [3, 1, 0, 2], bytes: 2GB}",
       "collective={kind: all-gather, algorithms: [auto, ring], begin: 1MiB, end: 4MiB, factor: 2, "
       "channels: 4, chunk: 64KiB}",
       "buckets=[25MB, 1GiB]", "traffic={messages: [4KiB, 1MiB], depths: [2, 3]}"});
  CHECK(scenario.rings.order == RingOrder{3, 1, 0, 2});
  CHECK(scenario.rings.bytes == 2'000'000'000);
  CHECK(scenario.collective.kind == CollectiveKind::kAllGather);
  REQUIRE(scenario.collective.algorithms.size() == 2);
  CHECK_FALSE(scenario.collective.algorithms[0]);
  CHECK(scenario.collective.algorithms[1] == CollectiveAlgorithm::kRing);
  CHECK(scenario.collective.factor == 2);
  CHECK(scenario.collective.chunk_bytes == 65536);
  CHECK(scenario.buckets == std::vector<std::int64_t>{25'000'000, 1 << 30});
  CHECK(scenario.traffic.messages == std::vector<std::int64_t>{4096, 1 << 20});
  CHECK(scenario.traffic.depths == std::vector<std::int32_t>{2, 3});
}

TEST_CASE("rings, collective and buckets that can't be say why", "[scenarios]") {
  const auto fault = [](const std::string& override_text) { return message_of(kSmall, {override_text}); };
  CHECK_THAT(fault("rings={order: [0, x]}"), Contains("rings.order") && Contains("expected whole numbers"));
  CHECK_THAT(fault("rings={order: [0, 1], from: a.log}"), Contains("second order"));
  CHECK_THAT(fault("collective={algorithms: [rung]}"), Contains("expected one of auto, ring"));
  CHECK_THAT(fault("collective={algorithms: []}"), Contains("is empty"));
  CHECK_THAT(fault("collective={begin: 1GiB, end: 1MiB}"), Contains("less than begin"));
  CHECK_THAT(fault("buckets=[]"), Contains("is empty"));
  CHECK_THAT(fault("buckets=25MB"), Contains("expected a list"));
  CHECK_THAT(fault("traffic={depths: [0]}"), Contains("whole numbers from 1"));
}

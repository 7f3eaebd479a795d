// The faults section of a scenario file.

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "scenarios/scenario.hpp"

using namespace orrery;
using namespace orrery::time_literals;
using Catch::Matchers::Contains;

namespace {

Scenario parse(const std::string& faults) {
  return parse_scenario(R"(model: {hidden: 1024, layers: 4, heads: 8, ffn: 4096, vocab: 32000}
sequence: 1024
global_batch: 16
cluster: {node: dgx-h100, nodes: 1}
plan: {tp: 2}
faults: )" + faults,
                        "f.yaml");
}

}  // namespace

TEST_CASE("faults are read with their times", "[scenarios]") {
  const Scenario scenario =
      parse("[{rank: 7, what: nvlink, factor: 0.5, from: 2us, until: 4us}, {rank: 0, what: gpu, factor: 0}]");
  REQUIRE(scenario.faults.size() == 2);
  const Fault& first = scenario.faults[0];
  CHECK(first.rank == RankId(7));
  CHECK(first.what == Fault::What::kNvLink);
  CHECK(first.factor == 0.5);
  CHECK(first.from == 2_us);
  CHECK(first.until == 4_us);
  CHECK(scenario.faults[1].from == SimTime{});
  CHECK_FALSE(scenario.faults[1].until.has_value());
}

TEST_CASE("wrong faults are told with their place", "[scenarios]") {
  const auto told = [](const std::string& fault, const std::string& expected) {
    CHECK_THROWS_WITH(parse("[" + fault + "]"), Contains("f.yaml:6:") && Contains(expected));
  };
  told("{what: gpu, factor: 0.5}", "the rank whose machine has the fault");
  told("{rank: 1, factor: 0.5}", "gpu, nic or nvlink");
  told("{rank: 1, what: gpu}", "what is left of its rate");
  told("{rank: 1, what: gpu, factor: 2}", "factor");
  told("{rank: 1, what: gpu, factor: 0.0001}", "less than 0.001");
  told("{rank: 1, what: gpu, factor: 0.5, from: 4us, until: 4us}", "no later than the fault's beginning");
  told("{rank: 1, what: gpu, factor: 0.5, from: 4}", "a time with its unit");
  told("{rank: 1, what: gpu, factor: 0.5, during: 4us}", "unknown key");
  told("{rank: 8, what: gpu, factor: 0.5}", "ranks are 0 to 7");
}

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

TEST_CASE("nodes, leaf switches, single NVLinks and a watchdog are read", "[scenarios]") {
  const Scenario scenario = parse(R"([{rank: 1, what: node, factor: 0}, {rank: 2, what: leaf, factor: 0},
  {rank: 3, what: uplink, factor: 0.5}, {rank: 4, what: nvlink, factor: 0.5, peer: 5}]
watchdog: 30s)");
  using enum Fault::What;
  REQUIRE(scenario.faults.size() == 4);
  CHECK(scenario.faults[0].what == kNode);
  CHECK(scenario.faults[1].what == kLeaf);
  CHECK(scenario.faults[2].what == kUplink);
  CHECK(scenario.faults[3].peer == RankId(5));
  CHECK_FALSE(scenario.faults[0].peer.valid());
  CHECK(scenario.watchdog == 30'000_ms);
  CHECK(parse("[]").watchdog == 600'000_ms);
}

TEST_CASE("random faults and remapping are read", "[scenarios]") {
  const Scenario scenario = parse(R"([]
random_faults:
  seed: 7
  steps: 50
  rates: [{what: nic, per_hour: 2e-3, repair: 10s}, {what: gpu, per_hour: 1e-5, factor: 0.5}]
remap: {policies: [re-ring, static], steps: 12, batch: shrink, checkpoint_every: 3, detect_loss: 1s,
        detect_network: 2s, detect_slow_steps: 4, init_base: 5ms, init_per_rank: 6ms, load_kernels: 7ms, lower: 8ms})");
  const RandomFaults& random = scenario.random_faults;
  CHECK(random.seed == 7);
  CHECK(random.steps == 50);
  const std::vector<FaultRate> rates = {{Fault::What::kNic, 2e-3, 10, 0}, {Fault::What::kGpu, 1e-5, 0, 0.5}};
  CHECK(random.rates == rates);
  const RemapRequest& remap = scenario.remap;
  CHECK(remap.policies == std::vector<RemapPolicy>{RemapPolicy::kReRing, RemapPolicy::kStatic});
  CHECK(remap.steps == 12);
  CHECK_FALSE(remap.keep_batch);
  CHECK(remap.checkpoint_every == 3);
  CHECK(remap.costs.detect_loss_s == 1);
  CHECK(remap.costs.detect_network_s == 2);
  CHECK(remap.costs.detect_slow_steps == 4);
  CHECK(remap.costs.init_base_s == 0.005);
  CHECK(remap.costs.init_per_rank_s == 0.006);
  CHECK(remap.costs.load_kernels_s == 0.007);
  CHECK(remap.costs.lower_s == 0.008);
  const auto told = [&](const std::string& section, const std::string& expected) {
    CHECK_THROWS_WITH(parse("[]\n" + section), Contains(expected));
  };
  told("random_faults: {rates: []}", "the undisturbed steps during which faults come");
  told("random_faults: {steps: 5}", "a list of what fails how often");
  told("random_faults: {steps: 5, rates: [{what: gpu}]}", "failures of one such part in an hour");
  told("remap: {policies: [dynamic]}", "expected static, re-ring or re-group");
  told("remap: {policies: [static, static]}", "is listed twice");
  told("watchdog: 0s", "watchdog");
}

TEST_CASE("wrong faults are told with their place", "[scenarios]") {
  const auto told = [](const std::string& fault, const std::string& expected) {
    CHECK_THROWS_WITH(parse("[" + fault + "]"), Contains("f.yaml:6:") && Contains(expected));
  };
  told("{what: gpu, factor: 0.5}", "the rank whose machine has the fault");
  told("{rank: 1, factor: 0.5}", "gpu, nic, nvlink, node, leaf or uplink");
  told("{rank: 1, what: nic, factor: 0.5, peer: 2}", "belongs to what: nvlink alone");
  told("{rank: 1, what: nvlink, factor: 0.5, peer: 8}", "ranks are 0 to 7");
  told("{rank: 1, what: gpu}", "what is left of its rate");
  told("{rank: 1, what: gpu, factor: 2}", "factor");
  told("{rank: 1, what: gpu, factor: 0.0001}", "less than 0.001");
  told("{rank: 1, what: gpu, factor: 0.5, from: 4us, until: 4us}", "no later than the fault's beginning");
  told("{rank: 1, what: gpu, factor: 0.5, from: 4}", "a time with its unit");
  told("{rank: 1, what: gpu, factor: 0.5, during: 4us}", "unknown key");
  told("{rank: 8, what: gpu, factor: 0.5}", "ranks are 0 to 7");
}

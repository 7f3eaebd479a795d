// The table and the JSON of remapping policies, from runs written by hand.

#include "report/remap_report.hpp"

#include <catch2/catch.hpp>

using namespace orrery;
using namespace orrery::time_literals;
using Catch::Matchers::Contains;

namespace {

Scenario scenario() {
  Scenario scenario;
  scenario.name = "two-policies";
  scenario.model.name = "model";
  scenario.cluster.node.gpus = 8;
  scenario.cluster.node.gpu.name = "GPU";
  scenario.cluster.nodes = 2;
  scenario.remap.steps = 10;
  scenario.faults = {{RankId(8), Fault::What::kNode, 0, 1'000_ms, 9'000_ms}};
  return scenario;
}

RemapRun hanging() {
  RemapRun run;
  run.before_s = 0.5;
  run.stretches = {{{}, 601'000_ms, 2, 16, 2, 0, 4}};
  Hang hang;
  hang.step = 2;
  hang.rank = RankId(0);
  hang.instruction = "reduce";
  hang.since = 1'000_ms;
  hang.until = 601'000_ms;
  hang.culprit = RankId(8);
  hang.culprit_instruction = "forward";
  run.hang = hang;
  run.steps = 2;
  run.sequences = 8;
  run.total_s = 601;
  return run;
}

RemapRun regrouped() {
  RemapRun run;
  run.policy = RemapPolicy::kReGroup;
  run.before_s = 0.5;
  run.after_s = 1;
  run.returned_s = 0.5;
  run.pauses = {{1'000_ms, "node of rank 8 lost", 5, 1.5, 0.25, 0.125, 0.0625, 3}};
  run.stretches = {{{}, 6'000_ms, 2, 16, 2, 0, 4}, {7'875_ms, 15'875_ms, 8, 8, 1, 1, 4}};
  run.steps = 10;
  run.sequences = 40;
  run.total_s = 16;
  return run;
}

}  // namespace

TEST_CASE("policies are told by line and story", "[report]") {
  const std::string table = to_table({hanging(), regrouped()}, scenario());
  CHECK_THAT(table, Contains("model on 16 x GPU"));
  CHECK_THAT(table, Contains("node of rank 8 lost from 1.000 s to 9.000 s"));
  CHECK_THAT(table, Contains("hangs in step 3 at 'reduce' of rank 0"));
  CHECK_THAT(table, Contains("never"));
  CHECK_THAT(table, Contains("5.000 s to notice, 1.500 s to rebuild"));
  CHECK_THAT(table, Contains("(3 steps, to the checkpoint)"));
  CHECK_THAT(table, Contains("1 replicas on 8 GPUs, batch 4, 1 GPUs through others' network cards"));
  CHECK_THAT(table, Contains("2.50"));  // 40 sequences in 16 s.
}

TEST_CASE("the JSON has what the table has", "[report]") {
  const std::string json = to_json({hanging(), regrouped()}, scenario());
  for (const char* part :
       {"\"policy\": \"static\"", "\"waits_for_rank\": 8", "\"until_s\": 601.0", "\"after_s\": null",
        "\"pause_s\": 6.875", "\"lost_steps\": 3", "\"relayed_gpus\": 1", "\"sequences_per_s\": 2.5"})
    CHECK_THAT(json, Contains(part));
}

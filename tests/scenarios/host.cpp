// Scenarios whose ranks run on the cores of one machine.

#include <catch2/catch.hpp>

#include "tests/scenarios/texts.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

std::string on_host(const std::string& cluster) {
  return "model: {hidden: 128, layers: 2, heads: 4, ffn: 384, vocab: 256}\n"
         "sequence: 128\n"
         "global_batch: 8\n"
         "cluster: " +
         cluster +
         "\n"
         "plan: {dp: 2, precision: fp32, kernel_set: orrery-host, vocab_multiple: 1}\n";
}

Scenario read(const std::string& cluster) { return parse_scenario(on_host(cluster), "host.yaml"); }

}  // namespace

TEST_CASE("a host is read into slots that share its cores", "[scenarios]") {
  const Scenario scenario =
      read("{host: {cores: 2, slots: 4, memory: 8GiB, peak: 96 GFLOP/s, bandwidth: 12GB/s}}");
  const NodeType& node = scenario.cluster.node;
  CHECK(node.cores == 2);
  CHECK(node.gpus == 4);
  CHECK(node.gpu.memory_bytes == std::int64_t{2} << 30);
  CHECK(node.gpu.peak(DType::kFp32) == 96e9);
  CHECK(node.gpu.peak(DType::kBf16) == node.gpu.peak(DType::kFp32));  // Widened on the way in.
  CHECK(node.gpu.memory_bytes_per_s == 12e9);
  CHECK(scenario.profile.communication_on_core);
  CHECK(scenario.notes.empty());
}

TEST_CASE("auto takes this machine's cores and says so", "[scenarios]") {
  const Scenario scenario = read("{host: {cores: auto}}");
  CHECK(scenario.cluster.node.cores >= 1);
  REQUIRE(scenario.notes.size() == 1);
  CHECK_THAT(scenario.notes[0], Contains("on another machine this file predicts something else"));
}

TEST_CASE("what a host can't be is a fault", "[scenarios]") {
  const auto message = [](const std::string& cluster) { return message_of(on_host(cluster)); };
  CHECK_THAT(message("{host: {slots: 2}}"), Contains("cluster.host.cores") && Contains("or auto"));
  CHECK_THAT(message("{host: {cores: 0}}"), Contains("cluster.host.cores: is \"0\"; expected"));
  CHECK_THAT(message("{host: {cores: many}}"), Contains("cluster.host.cores: is"));
  CHECK_THAT(message("{host: 2}"), Contains("cluster.host"));
  CHECK_THAT(message("{host: {cores: 2}, nodes: 2}"), Contains("cluster.nodes") && Contains("drop it"));
  CHECK_THAT(message("{host: {cores: 2}, node: dgx-h100}"), Contains("cluster.node: is of a GPU machine"));
  CHECK_THAT(message("{host: {cores: 2, slot: 4}}"), Contains("did you mean \"slots\""));
}

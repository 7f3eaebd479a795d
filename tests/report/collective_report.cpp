// Sweeps side by side, the size from which on a collective is efficient, and buckets of gradients.
#include "report/collective_report.hpp"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "planner/plan.hpp"
#include "report/bucket_study.hpp"
#include "scenarios/scenario.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

CollectiveRow row(std::int64_t bytes, double busbw, std::int64_t time_ps = 1) {
  CollectiveRow made;
  made.bytes = bytes;
  made.busbw_bytes_per_s = busbw;
  made.time = SimTime{time_ps};
  return made;
}

}  // namespace

TEST_CASE("a collective is efficient from the size on at which four fifths of its best are kept",
          "[report][collective]") {
  // Best 100, so 80 counts; the 85 at the beginning is followed by 70 and doesn't.
  const std::vector<CollectiveRow> rows{row(1, 85), row(4, 70), row(16, 80), row(64, 100), row(256, 90)};
  CHECK(efficient_bytes(rows) == 16);
  CHECK(efficient_bytes(std::vector{row(8, 3)}) == 8);
}

TEST_CASE("the fastest of several algorithms is marked at each size", "[report][collective]") {
  const std::vector<CollectiveSeries> all{{"ring", {row(1, 1, 9), row(4, 1, 10)}},
                                          {"chain", {row(1, 1, 7), row(4, 1, 10)}}};
  CHECK(fastest(all) == std::vector<std::size_t>{1, 0});  // Of equal ones the first.
  Cluster cluster;
  cluster.node = *catalogue_node("dgx-a100");
  CHECK_THAT(to_table(all, CollectiveKind::kAllReduce, cluster), Contains("fastest"));
  const auto json = nlohmann::json::parse(to_json(all, CollectiveKind::kAllReduce, cluster));
  CHECK(json["rows"].size() == 4);
  CHECK(json["efficient"][1]["algorithm"] == "chain");
}

// Llama-like, eight layers on two ranks: one bucket per layer, one for the embedding and one for the head, or
// one for all.
TEST_CASE("buckets of gradients are counted, and one for all hides nothing", "[report][collective]") {
  const std::string text =
      "model: {hidden: 1024, layers: 8, heads: 8, ffn: 4096, vocab: 32000}\nsequence: 2048\nglobal_batch: 2\n"
      "cluster: {node: dgx-h100}\nplan: {dp: 2}\nbuckets: [1KiB, 1TiB]\n";
  const Scenario scenario = parse_scenario(text, "small.yaml");
  CHECK(scenario.buckets == std::vector<std::int64_t>{1 << 10, std::int64_t{1} << 40});
  const Graph graph = build_training_graph(scenario.model, scenario.plan.settings.compute_dtype);
  const Plan plan = expand(scenario.plan, graph, scenario.cluster.gpu_count());
  const std::vector<BucketRow> rows =
      study_buckets(graph, plan, scenario.cluster, scenario.profile, scenario.buckets);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].buckets == 10);
  CHECK(rows[1].buckets == 1);
  CHECK(rows[1].most_bytes > rows[0].most_bytes);
  CHECK(rows[0].idle < rows[1].idle);
  CHECK(rows[0].step_s < rows[1].step_s);
  for (const BucketRow& one : rows) {
    CHECK(one.exposed <= one.idle + 1e-9);  // Sums of the same parts.
    CHECK(one.idle < 1);
  }
  CHECK_THAT(to_table(rows), Contains("exposed"));
}

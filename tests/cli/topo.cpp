// Exit codes and output of `orrery topo`, `orrery diagnose` and `orrery collective`, on our own machine's
// dumps.

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/cli/process.hpp"

using namespace orrery::cli_test;
using Catch::Matchers::Contains;

namespace {

const std::string kDumps = "tests/data/topo/h200x2/";  // From the root of the repository.

}  // namespace

TEST_CASE("topo show gives what NCCL dumped on the machine", "[cli][topo]") {
  const Outcome outcome = run_orrery("topo show " + kDumps + "topology.xml");
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("NVL/370.8") && Contains("12 channels of 30 GB/s"));
  CHECK_THAT(outcome.err, Contains("link_width is 0"));  // Remarks stay out of what is piped on.
}

TEST_CASE("topo check goes on after a bad file and ends with 3", "[cli][topo]") {
  const Scratch scratch;
  const std::string bad = scratch.write("bad.txt", "no topology at all\n").string();
  const Outcome outcome = run_orrery("topo check " + bad + " " + kDumps + "default.log");
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.out, Contains("bad.txt") && Contains("default.log: NCCL log, 1 host"));
  CHECK_THAT(outcome.err, Contains("1 of 2 files"));
  CHECK(run_orrery("topo show nowhere.xml").code == 3);
}

TEST_CASE("topo convert writes what it reads back without a difference", "[cli][topo]") {
  const Scratch scratch;
  const std::string copy = (scratch.folder() / "copy.xml").string();
  CHECK(run_orrery("topo convert " + kDumps + "topology.xml --output " + copy).code == 0);
  CHECK(run_orrery("topo diff " + kDumps + "topology.xml " + copy).code == 0);
  const Outcome other = run_orrery("topo diff " + copy + " dgx-h100");
  CHECK(other.code == 6);
  CHECK_THAT(other.out, Contains("GPU 7"));
  // NCCL's own dump of its graphs on that machine.
  const std::string graphs = (scratch.folder() / "graph.xml").string();
  CHECK(run_orrery("topo convert " + copy + " --to nccl-graph --output " + graphs).code == 0);
  CHECK_THAT(run_orrery("topo show " + graphs).out, Contains("12 channels of 30 GB/s inside"));
  CHECK_THAT(run_orrery("topo convert dgx-h100 --to simgrid").out, Contains("<platform") && Contains("gpu7"));
  CHECK_THAT(run_orrery("topo convert dgx-h100 --to dot").out, Contains("graph"));
  const auto json = nlohmann::json::parse(run_orrery("topo convert " + copy + " --to json").out);
  CHECK(json["hosts"][0]["gpus"].size() == 2);
}

TEST_CASE("topo rings prices an order and writes the best one for NCCL", "[cli][topo]") {
  const Scratch scratch;
  const std::string graph = (scratch.folder() / "graph.xml").string();
  const Outcome outcome = run_orrery("topo rings dgx-v100-mesh --bytes 2GB --json - --graph " + graph);
  CHECK(outcome.code == 0);
  const auto json = nlohmann::json::parse(outcome.out);
  CHECK(json["given"]["edges_off_nvlink"] == 2);
  CHECK(json["best"]["edges_off_nvlink"] == 0);
  CHECK(json["best_proved"] == true);
  const auto again = nlohmann::json::parse(run_orrery("topo rings dgx-v100-mesh " + graph + " --json -").out);
  CHECK(again["given"]["orders"] == json["best"]["orders"]);
  CHECK(run_orrery("topo rings dgx-v100-mesh --order 0,1,1").code == 3);
}

TEST_CASE("diagnose orders findings by cost, as text and as JSON", "[cli][topo]") {
  const std::string files = kDumps + "topology.xml " + kDumps + "no-p2p.log";
  const Outcome outcome = run_orrery("diagnose --quiet " + files);
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  CHECK_THAT(outcome.out, Contains("NCCL_P2P_DISABLE") && Contains("40 GB/s instead of 360"));
  const auto json = nlohmann::json::parse(run_orrery("diagnose --json - --quiet " + files).out);
  REQUIRE(json.size() > 1);
  CHECK(json[0]["loss"].get<double>() >= json[1]["loss"].get<double>());
  CHECK(json[0]["evidence"][0]["line"].get<int>() > 0);
}

TEST_CASE("collective sweeps sizes in both engines", "[cli][collective]") {
  const Outcome outcome = run_orrery(
      "collective dgx-h100 --nodes 2 --algorithm ring --begin 4MiB --end 16MiB --both-engines --json -");
  CHECK(outcome.code == 0);
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  REQUIRE(rows.size() == 2);
  for (const auto& row : rows) {
    CHECK(row["simgrid_s"].get<double>() == Approx(row["time_s"].get<double>()).epsilon(1e-6));
    CHECK(row["busbw_bytes_per_s"].get<double>() ==
          Approx(row["algbw_bytes_per_s"].get<double>() * 2 * 15 / 16));
  }
  CHECK(run_orrery("collective dgx-h100 --kind all-to-all --algorithm nvls").code == 3);
  CHECK(run_orrery("collective dgx-h100 --begin 1GiB --end 1MiB").code == 2);
}

TEST_CASE("topo rings takes a scenario with a matrix and a log, or with an order", "[cli][topo]") {
  // Two edges of the log's ring cross the sockets' link, at 12 GB/s as NCCL counts it where no processor is
  // named: 2 · 7/8 · 1 GiB / 12 GB/s = 156.6 ms. Best: 40 GB/s, two NVLinks everywhere, 47.0 ms.
  const auto wrong =
      nlohmann::json::parse(run_orrery("topo rings scenarios/rings-wrong-order.yaml --json -").out);
  CHECK(wrong["order_source"].get<std::string>().ends_with("wrong-order.log"));
  CHECK(wrong["given"]["edges_off_nvlink"] == 2);
  CHECK(wrong["given"]["all_reduce_s"].get<double>() == Approx(0.156598).epsilon(1e-3));
  CHECK(wrong["best"]["all_reduce_s"].get<double>() == Approx(0.046985).epsilon(1e-3));
  CHECK(wrong["best"]["orders"][0] == nlohmann::json::parse("[0,4,7,6,5,1,2,3]"));
  // Six edges over one NVLink and two over five links: 16 in all, 2 per edge.
  const auto mesh =
      nlohmann::json::parse(run_orrery("topo rings scenarios/rings-dgx1-mesh.yaml --json -").out);
  CHECK(mesh["given"]["mean_links"].get<double>() == Approx(2));
  CHECK(mesh["best"]["mean_links"].get<double>() == Approx(1));
  CHECK(mesh["given"]["all_reduce_s"].get<double>() == Approx(0.583351).epsilon(1e-3));
  CHECK(mesh["best"]["all_reduce_s"].get<double>() == Approx(0.087508).epsilon(1e-3));
  CHECK(run_orrery("topo rings scenarios/rings-dgx1-mesh.yaml --set 'rings={order: [0, 9]}'").code == 3);
  CHECK(run_orrery("topo rings dgx-v100-mesh --set rings.bytes=1GB").code == 2);
}

TEST_CASE("collective takes a scenario with algorithms side by side, or with buckets", "[cli][collective]") {
  const Outcome outcome =
      run_orrery("collective scenarios/collective-ring-chain.yaml --set collective.begin=1GiB --json -");
  CHECK(outcome.code == 0);
  const auto rows = nlohmann::json::parse(outcome.out)["rows"];
  REQUIRE(rows.size() == 4);  // Ring, chain, both, and NCCL's choice, which is the ring.
  CHECK(rows[0]["time_s"] == rows[3]["time_s"]);
  CHECK(rows[0]["time_s"].get<double>() < rows[1]["time_s"].get<double>());
  CHECK(rows[1]["time_s"].get<double>() < rows[2]["time_s"].get<double>());
  CHECK(run_orrery("collective scenarios/collective-ring-chain.yaml --kind broadcast").code == 2);
  const auto buckets = nlohmann::json::parse(
      run_orrery("collective scenarios/buckets-llama3-8b-32xh100.yaml --set collective.begin=1GiB --json -")
          .out)["buckets"];
  REQUIRE(buckets.size() == 6);
  CHECK(buckets[0]["buckets"] == 34);  // 32 layers, the embedding, the head.
  CHECK(buckets[5]["buckets"] == 1);
  CHECK(buckets[0]["idle"].get<double>() < 0.15);
  CHECK(buckets[5]["idle"].get<double>() > 0.25);
}

// Findings of `orrery diagnose` on small files that show one mistake each, and on our own dumps.
#include "report/diagnose.hpp"

#include <catch2/catch.hpp>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "report/ring_report.hpp"
#include "report/topology_report.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

std::string own_file(const std::string& name) {
  std::ifstream in(std::string(ORRERY_SOURCE_DIR) + "/tests/data/topo/h200x2/" + name);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Finding> diagnose_text(const std::string& text, const std::string& name = "pasted") {
  return diagnose(std::vector<TopologyFile>{read_topology_file(text, name)});
}

const Finding* find(const std::vector<Finding>& findings, const std::string& id) {
  for (const Finding& finding : findings)
    if (finding.id == id) return &finding;
  return nullptr;
}

// Eight GPUs on an NVSwitch, GPU 2 without links.
std::string lost_links() {
  std::string text = "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\tNUMA Affinity\n";
  for (int a = 0; a < 8; ++a) {
    text += "GPU" + std::to_string(a);
    for (int b = 0; b < 8; ++b)
      text += a == b ? "\t X " : a == 2 || b == 2 ? a / 4 == b / 4 ? "\tNODE" : "\tSYS" : "\tNV18";
    text += a < 4 ? "\t0-31\t0\n" : "\t32-63\t1\n";
  }
  return text;
}

std::string topology(const std::string& gpu_bridge_speed) {
  std::string text =
      "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"143\">\n";
  for (int i = 1; i <= 2; ++i) {
    const std::string bus = "0000:" + std::to_string(i);
    text += "<pci busid=\"" + bus + "0:00.0\" class=\"0x060400\" " + gpu_bridge_speed + ">\n";
    text += "<pci busid=\"" + bus +
            "1:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"" +
            std::to_string(i - 1) + "\" sm=\"90\" rank=\"" + std::to_string(i - 1) +
            "\" gdr=\"1\"/></pci>\n</pci>\n";
  }
  return text + "</cpu>\n</system>\n";
}

}  // namespace

TEST_CASE("a GPU that lost its NVLinks is found with its line and priced", "[report][diagnose]") {
  const std::vector<Finding> findings = diagnose_text(lost_links(), "node7.txt");
  const Finding* const finding = find(findings, "gpu-without-nvlink");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->title, Contains("GPU 2"));
  CHECK(finding->evidence.front().file == "node7.txt");
  CHECK(finding->evidence.front().line == 4);
  REQUIRE(finding->now_gb_per_s);
  // Without it NCCL's rings fill the NVLinks; with it they go over PCIe.
  CHECK(*finding->mended_gb_per_s > 5 * *finding->now_gb_per_s);
  CHECK(findings.size() == 1);  // The reader's own note on it isn't told twice.
}

TEST_CASE("a virtual machine's slow bridges are found and priced", "[report][diagnose]") {
  const std::string slow = R"(link_speed="2.5 GT/s PCIe" link_width="1")";
  const std::string fast = R"(link_speed="32.0 GT/s PCIe" link_width="16")";
  const Finding* const none = find(diagnose_text(topology(fast)), "bridge-too-slow");
  CHECK(none == nullptr);
  const std::vector<Finding> findings = diagnose_text(topology(slow));
  const Finding* const finding = find(findings, "bridge-too-slow");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->evidence.front().text, Contains("0000:10:00.0") && Contains("0000:20:00.0"));
}

TEST_CASE("settings that hold NCCL back are priced by its search", "[report][diagnose]") {
  const std::vector<TopologyFile> files{read_topology_file(own_file("topology.xml"), "topology.xml"),
                                        read_topology_file(own_file("no-p2p.log"), "no-p2p.log")};
  const std::vector<Finding> findings = diagnose(files);
  const Finding* const disabled = find(findings, "setting-NCCL_P2P_DISABLE");
  REQUIRE(disabled != nullptr);
  // The machine's own dumps: 2 channels of 20 GB/s instead of 12 of 30.
  CHECK(*disabled->now_gb_per_s == Approx(40));
  CHECK(*disabled->mended_gb_per_s == Approx(360));
  const Finding* const shm = find(findings, "through-host-memory");
  REQUIRE(shm != nullptr);
  CHECK(shm->evidence.front().line > 0);
  // Dearest first.
  for (std::size_t i = 1; i < findings.size(); ++i)
    CHECK((findings[i - 1].stops_run || findings[i - 1].loss() >= findings[i].loss()));
}

TEST_CASE("a sound machine has no findings but its settings", "[report][diagnose]") {
  const std::vector<TopologyFile> files{
      read_topology_file(own_file("smi-m.txt"), "smi-m.txt"),
      read_topology_file(own_file("topology.xml"), "topology.xml"),
      read_topology_file(own_file("smi-p2p-r.txt"), "smi-p2p-r.txt"),
      read_topology_file(own_file("default-graph.xml"), "default-graph.xml")};
  CHECK(to_table(diagnose(files)) == "Nothing found.\n");
}

// Four GPUs with bridges 0-2, 2-1, 1-3 and 3-0: index order goes over PCIe twice.
TEST_CASE("a ring that leaves NVLink is named with the better order", "[report][diagnose]") {
  const std::string matrix =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tPHB\tNV4\tNV4\t0-15\t0\nGPU1\tPHB\t X \tNV4\tNV4\t0-15\t0\n"
      "GPU2\tNV4\tNV4\t X \tPHB\t0-15\t0\nGPU3\tNV4\tNV4\tPHB\t X \t0-15\t0\n";
  const std::string graph =
      "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"10\" "
      "speedinter=\"10\" latencyinter=\"0\" typeintra=\"PHB\" typeinter=\"PIX\" samechannels=\"1\"><channel>"
      "<gpu dev=\"0\"/><gpu dev=\"0x1\"/><gpu dev=\"0x2\"/><gpu dev=\"0x3\"/></channel></graph></graphs>";
  const std::vector<TopologyFile> files{read_topology_file(matrix, "matrix.txt"),
                                        read_topology_file(graph, "graph.xml")};
  const std::vector<RingOrder> rings = rings_of(files[1]);
  REQUIRE(rings == std::vector<RingOrder>{{0, 1, 2, 3}});
  const std::vector<Finding> findings = diagnose(files);
  const Finding* const finding = find(findings, "ring-order");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->evidence.front().text, Contains("gpu0 -> gpu1 PHB, gpu2 -> gpu3 PHB"));
  CHECK_THAT(finding->remedy, Contains("CUDA_VISIBLE_DEVICES=0,3,1,2"));
  CHECK(finding->loss() > 0.1);
}

TEST_CASE("MIG stops a run and comes first", "[report][diagnose]") {
  TopologyFile file = read_topology_file(lost_links(), "pasted");
  file.matrix->mig_enabled = true;
  CHECK(diagnose({&file, 1}).front().id == "mig-enabled");
}

TEST_CASE("hosts are compared with hosts of the same kind of file", "[report][diagnose]") {
  const std::string speed = R"(link_speed="32.0 GT/s PCIe" link_width="16")";
  std::string amd = topology(speed);
  amd.replace(amd.find("GenuineIntel"), 12, "AuthenticAMD");
  const std::vector<TopologyFile> files{read_topology_file(topology(speed), "a.xml"),
                                        read_topology_file(amd, "b.xml")};
  const std::vector<Finding> findings = diagnose(files);
  const Finding* const mixed = find(findings, "mixed-cpu-vendors");
  REQUIRE(mixed != nullptr);
  CHECK(mixed->stops_run);
  CHECK(mixed->evidence.size() == 2);
  CHECK(find(findings, "hosts-differ") != nullptr);
}

TEST_CASE("findings as JSON hold what the table holds", "[report][diagnose]") {
  const std::vector<Finding> findings = diagnose_text(lost_links(), "node7.txt");
  const nlohmann::json json = nlohmann::json::parse(to_json(findings));
  REQUIRE(json.size() == findings.size());
  CHECK(json[0]["id"] == "gpu-without-nvlink");
  CHECK(json[0]["evidence"][0]["line"] == 4);
  CHECK(json[0]["loss"].get<double>() == Approx(findings[0].loss()));
}

TEST_CASE("ring reports give NCCL a graph file that reads back", "[report][rings]") {
  const NodeType node = catalogue_node("dgx-v100-mesh").value();
  const RingReport report = ring_report(node, {{0, 1, 2, 3, 4, 5, 6, 7}}, "index order");
  CHECK(report.best_cost.bytes_per_s > 2 * report.given_cost.bytes_per_s);
  const TopologyFile graph = read_topology_file(nccl_graph_file(report), "graph.xml");
  REQUIRE(graph.graphs.size() == 1);
  CHECK(rings_of(graph) == report.best);
  CHECK_THAT(to_table(report, 2'000'000'000), Contains("2 of 8 edges off NVLink"));
  CHECK_THROWS_WITH(ring_report(node, {{0, 1, 1}}, "x"), Contains("GPU 1 stands there twice"));
  CHECK_THROWS_WITH(ring_report(node, {{0, 9}}, "x"), Contains("there is no GPU 9"));
}

TEST_CASE("differences between machines are named device by device", "[report][topology]") {
  const Host whole = read_topology_file(lost_links(), "a").hosts.front();
  Host other = whole;
  CHECK(difference(whole, other).empty());
  other.gpus[5].nvlinks.clear();
  CHECK_THAT(difference(whole, other), Contains("GPU 5") && Contains("NVLinks none") && !Contains("GPU 4"));
}

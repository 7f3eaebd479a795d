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

// A log in NCCL's form: rank 0 of four on two nodes, and what `lines` add.
std::vector<Finding> diagnose_log(const std::string& lines) {
  const std::string head =
      "node0:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\n"
      "node0:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 "
      "commId 0x9 - "
      "Init START\n"
      "node0:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0\n"
      "node0:1:1 [0] NCCL INFO Channel 00/01 :    0   1   2   3\n";
  return diagnose_text(head + lines, "job.log");
}

TEST_CASE("connections of a log that are slower than they need be", "[report][diagnose]") {
  const std::vector<Finding> plain = diagnose_log(
      "node0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
      "node0:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
      "node1:2:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/0/GDRDMA\n");
  for (const char* id : {"through-host-memory", "socket-network", "no-gpudirect", "rails-crossed"})
    CHECK(find(plain, id) == nullptr);

  const std::vector<Finding> slow = diagnose_log(
      "node0:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
      "node0:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0\n"
      "node0:1:1 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/IB/0\n");
  const Finding* const shm = find(slow, "through-host-memory");
  REQUIRE(shm != nullptr);
  CHECK(shm->evidence.front().line == 5);
  CHECK_THAT(shm->evidence.front().text, Contains("0 -> 1"));
  CHECK(find(slow, "socket-network") != nullptr);
  const Finding* const copied = find(slow, "no-gpudirect");
  REQUIRE(copied != nullptr);
  CHECK_THAT(copied->title, Contains("1 of 2"));
}

TEST_CASE("an edge that changes rails stops a run where rails are to be kept", "[report][diagnose]") {
  const std::string edge =
      "node0:1:1 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [send] via NET/IB/0/GDRDMA\n"
      "node1:2:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 2[0] [receive] via NET/IB/3/GDRDMA\n";
  const std::vector<Finding> free = diagnose_log(edge);
  const Finding* const crossed = find(free, "rails-crossed");
  REQUIRE(crossed != nullptr);
  CHECK_FALSE(crossed->stops_run);
  const std::vector<Finding> kept =
      diagnose_log("node0:1:1 [0] NCCL INFO NCCL_CROSS_NIC set by environment to 0.\n" + edge);
  const Finding* const against = find(kept, "rails-crossed-against-setting");
  REQUIRE(against != nullptr);
  CHECK(against->stops_run);
}

TEST_CASE("failures that a log tells of", "[report][diagnose]") {
  const std::vector<Finding> findings = diagnose_log(
      "node0:1:1 [0] NCCL INFO Could not find a path for pattern 4, falling back to simple order\n"
      "node0:1:1 [0] misc.cc:7 NCCL WARN NET/IB: Got completion from peer 10.0.0.1<1> with status=12 "
      "opcode=0 len=0\n"
      "node0:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n"
      "node1:2:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.2<0>\n");
  for (const char* id : {"no-path-found", "network-error", "hosts-with-different-nics"}) {
    INFO(id);
    CHECK(find(findings, id) != nullptr);
  }
  CHECK(findings.front().stops_run);
  const std::vector<Finding> nvls = diagnose_log(
      "node0:1:1 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 2 "
      "p2p "
      "channels per peer\n"
      "node0:1:1 [0] transport/nvls.cc:168 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory\n");
  CHECK(find(nvls, "nvls-failed") != nullptr);
}

TEST_CASE("a graph file at NCCL's last resort is a finding", "[report][diagnose]") {
  const std::vector<Finding> findings = diagnose_text(
      "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"1\" speedintra=\"0.1\" "
      "speedinter=\"0.1\" latencyinter=\"0\" typeintra=\"SYS\" typeinter=\"SYS\" samechannels=\"1\"><channel>"
      "<gpu dev=\"0\"/><gpu dev=\"0x1\"/></channel></graph></graphs>");
  REQUIRE(find(findings, "no-path-found") != nullptr);
}

// Eight GPUs behind an NVSwitch, eight cards, all cells between them PHB or SYS.
TEST_CASE("a machine without switches between GPUs and cards is taken for a flattened one",
          "[report][diagnose]") {
  const auto matrix = [](bool near) {
    std::string text;
    for (int g = 0; g < 4; ++g) text += "\tGPU" + std::to_string(g);
    for (int n = 0; n < 4; ++n) text += "\tmlx5_" + std::to_string(n);
    text += "\tCPU Affinity\tNUMA Affinity\n";
    for (int row = 0; row < 8; ++row) {
      text += row < 4 ? "GPU" + std::to_string(row) : "mlx5_" + std::to_string(row - 4);
      for (int column = 0; column < 8; ++column)
        text += row == column                   ? "\t X "
                : row < 4 && column < 4         ? "\tNV18"
                : near && row % 4 == column % 4 ? "\tPIX"
                                                : "\tPHB";
      text += row < 4 ? "\t0-31\t0\n" : "\n";
    }
    return text;
  };
  CHECK(find(diagnose_text(matrix(true)), "flattened-vm") == nullptr);
  CHECK(find(diagnose_text(matrix(false)), "flattened-vm") != nullptr);
}

TEST_CASE("a card behind a slot of a lane is named with the slot", "[report][diagnose]") {
  const std::string text =
      "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
      "modelid=\"143\">"
      "<pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
      "<gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"/></pci>"
      "<pci busid=\"0000:02:00.0\" class=\"0x020700\" link_speed=\"16.0 GT/s PCIe\" link_width=\"1\"><nic>"
      "<net name=\"mlx5_0\" dev=\"0\" speed=\"200000\" port=\"1\" guid=\"0x1\" maxconn=\"1\" "
      "gdr=\"1\"/></nic></pci>"
      "</cpu></system>";
  const std::vector<Finding> findings = diagnose_text(text);
  const Finding* const finding = find(findings, "nic-behind-slow-pcie");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->remedy, Contains("0000:02:00.0"));
  CHECK(*finding->now_gb_per_s == Approx(1.5));  // 120 · 1 / 80.
  CHECK(*finding->mended_gb_per_s == Approx(25));
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

// Findings of `orrery diagnose` over jobs: versions beside each other, pairs of GPUs, network proxies,
// choices of algorithms, ranks that aren't there. Each on a small log made here.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "report/diagnose.hpp"
#include "topology/import/nccl_topology_xml.hpp"
#include "topology/import/node_host.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

const Finding* find(const std::vector<Finding>& findings, const std::string& id) {
  for (const Finding& finding : findings)
    if (finding.id == id) return &finding;
  return nullptr;
}

struct Job {
  std::int32_t ranks = 4, nodes = 1;
  std::string version = "2.27.3";
  // By rank: who it is and where, as NCCL prints it while it starts.
  std::string text() const {
    std::string lines = "n0:1:1 [0] NCCL INFO NCCL version " + version + "+cuda12.4\n";
    for (std::int32_t r = 0; r < ranks; ++r)
      lines += say(r, fmt::format("comm 0x{} rank {} nRanks {} nNodes {} localRanks {} localRank {} MNNVL 0",
                                  50 + r, r, ranks, nodes, ranks / nodes, r % (ranks / nodes)));
    return lines;
  }
  std::string say(std::int32_t rank, const std::string& message) const {
    const std::int32_t local = rank % (ranks / nodes);
    return fmt::format("n{}:{}:{} [{}] NCCL INFO {}\n", rank / (ranks / nodes), 100 + rank, 200 + rank, local,
                       message);
  }
  std::string enter(std::int32_t rank, const std::string& function, int number, int elements = 1024) const {
    return say(
        rank, fmt::format("{}: opCount {:x} sendbuff 0x7f recvbuff 0x7f count {} datatype 7 op 0 root 0 comm "
                          "0x{} [nranks={}] stream 0x9",
                          function, number, elements, 50 + rank, ranks));
  }
  std::string rings(std::int32_t channels, const std::string& order) const {
    std::string lines;
    for (std::int32_t c = 0; c < channels; ++c)
      lines += say(0, fmt::format("Channel {:02}/{:02} : {}", c, channels, order));
    return lines;
  }
  // What the search found, with its channels over GPUs at bus ids 1000, 2000, …
  std::string pattern(std::int32_t channels, double gb_per_s) const {
    std::string lines = say(
        0, fmt::format("Pattern 4, crossNic 0, nChannels {}, bw {:.6f}/{:.6f}, type NVL/PIX, sameChannels 1",
                       channels, gb_per_s, gb_per_s));
    for (std::int32_t c = 0; c < channels; ++c) {
      std::string gpus;
      for (std::int32_t g = 1; g <= ranks / nodes; ++g) gpus += fmt::format(" GPU/0-{}000", g);
      lines += say(0, fmt::format(" {} :{}", c, gpus));
    }
    return lines;
  }
};

TopologyFile log_of(const std::string& text, const std::string& name = "job.log") {
  return read_topology_file(text, name);
}

std::vector<Finding> diagnose_log(const std::string& text) {
  return diagnose(std::vector<TopologyFile>{log_of(text)});
}

TopologyFile machine(const std::string& node) {
  TopologyFile file;
  file.name = node;
  file.kind = TopologyFileKind::kMachine;
  file.hosts = hosts_of(catalogue_node(node).value());
  return file;
}

}  // namespace

TEST_CASE("the rank that did not enter an operation is named", "[report][diagnose]") {
  const Job job;
  std::string text = job.text();
  for (int r = 0; r < 4; ++r) text += job.enter(r, "AllReduce", 0x1a);
  CHECK(find(diagnose_log(text), "rank-behind") == nullptr);  // All are in the same one.
  const std::string all_went_on = text;
  for (int r = 0; r < 4; ++r)
    if (r != 2) text += job.enter(r, "AllGather", 0x1b);
  const std::vector<Finding> findings = diagnose_log(text);
  const Finding* const finding = find(findings, "rank-behind");
  REQUIRE(finding != nullptr);
  CHECK(finding->stops_run);
  CHECK_THAT(finding->title,
             Contains("rank 2 on n0 did not enter AllGather number 27, in which 3 ranks wait"));
  // One line of version, four of ranks, four of operations of which rank 2's is the third.
  CHECK(finding->evidence.front().line == 8);
  // 0.04 s + 3 · 0.0366 s for the three that are left.
  CHECK_THAT(finding->remedy, Contains("ncclCommAbort") && Contains("0.1 s for 3 ranks"));
  // Closed by all: it came to its end.
  std::string closed = text;
  for (int r = 0; r < 4; ++r)
    closed += job.say(
        r, fmt::format("comm 0x{} rank {} nranks 4 cudaDev {} busId 1000 - Destroy COMPLETE", 50 + r, r, r));
  CHECK(find(diagnose_log(closed), "rank-behind") == nullptr);
  // Half of them behind, or one of which nothing is said: a log that was cut, as far as anyone can know.
  std::string half = all_went_on + job.enter(0, "AllReduce", 0x1b) + job.enter(1, "AllReduce", 0x1b);
  CHECK(find(diagnose_log(half), "rank-behind") == nullptr);
}

TEST_CASE("ranks that enter different operations under one number are named", "[report][diagnose]") {
  const Job job;
  std::string text = job.text();
  for (int r = 0; r < 4; ++r) text += job.enter(r, r == 3 ? "Broadcast" : "AllReduce", 5);
  const std::vector<Finding> findings = diagnose_log(text);
  const Finding* const finding = find(findings, "operations-differ");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->title, Contains("AllReduce of 1024") && Contains("Broadcast of 1024"));
}

TEST_CASE("two versions that lay other channels are compared", "[report][diagnose]") {
  Job old_job, new_job;
  old_job.version = "2.21.5";
  new_job.version = "2.25.1";
  const std::string old_log = old_job.text() + old_job.pattern(4, 20) + old_job.rings(4, "0 1 2 3");
  const std::string new_log = new_job.text() + new_job.pattern(2, 10) + new_job.rings(2, "0 2 1 3");
  const std::vector<Finding> findings =
      diagnose(std::vector<TopologyFile>{log_of(old_log, "old.log"), log_of(new_log, "new.log")});
  const Finding* const finding = find(findings, "versions-differ");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->title, Contains("NCCL 2.25.1 gives 2 channels where NCCL 2.21.5 gives 4"));
  CHECK_THAT(finding->cause, Contains("ring orders differ too"));
  CHECK_THAT(finding->remedy, Contains("NCCL_GRAPH_FILE"));
  CHECK(finding->evidence.front().file == "new.log");
  CHECK(*finding->now_gb_per_s == Approx(20));     // 2 channels of 10.
  CHECK(*finding->mended_gb_per_s == Approx(80));  // 4 of 20.
  const std::vector<Finding> same =
      diagnose(std::vector<TopologyFile>{log_of(old_log, "a.log"), log_of(old_log, "b.log")});
  CHECK(find(same, "versions-differ") == nullptr);
  CHECK(find(same, "graphs-differ") == nullptr);
}

TEST_CASE("two graph files of one machine are compared", "[report][diagnose]") {
  const auto graph = [](int channels) {
    std::string text = fmt::format(
        "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" nchannels=\"{}\" "
        "speedintra=\"20\" "
        "speedinter=\"20\" latencyinter=\"0\" typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"1\">",
        channels);
    for (int c = 0; c < channels; ++c) text += "<channel><gpu dev=\"0\"/><gpu dev=\"0x1\"/></channel>";
    return text + "</graph></graphs>";
  };
  const std::vector<Finding> findings = diagnose(std::vector<TopologyFile>{
      read_topology_file(graph(6), "a.xml"), read_topology_file(graph(2), "b.xml")});
  const Finding* const finding = find(findings, "graphs-differ");
  REQUIRE(finding != nullptr);
  CHECK(*finding->now_gb_per_s == Approx(40));
  CHECK(*finding->mended_gb_per_s == Approx(120));
}

// Two pairs on two sockets: whatever the order, two edges cross the sockets; in 0 2 1 3 all four do.
TEST_CASE("rings that go in and out of pairs are found though they are as fast", "[report][diagnose]") {
  const std::string matrix =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV4\tSYS\tSYS\t0-31\t0\nGPU1\tNV4\t X \tSYS\tSYS\t0-31\t0\n"
      "GPU2\tSYS\tSYS\t X \tNV4\t32-63\t1\nGPU3\tSYS\tSYS\tNV4\t X \t32-63\t1\n";
  const auto findings = [&](const std::string& order) {
    Job job;
    job.version = "2.16.2";
    return diagnose(std::vector<TopologyFile>{read_topology_file(matrix, "pairs.txt"),
                                              log_of(job.text() + job.rings(1, order))});
  };
  CHECK(find(findings("0 1 2 3"), "islands-torn") == nullptr);
  const std::vector<Finding> torn = findings("0 2 1 3");
  const Finding* const finding = find(torn, "islands-torn");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->title, Contains("4 edges of the rings leave NVLink where 2 would do"));
  CHECK_THAT(finding->cause, Contains("4 edges cross sockets instead of 2"));
  CHECK_THAT(finding->evidence.front().text, Contains("NCCL 2.16.2"));
  CHECK(finding->loss() == 0);
}

TEST_CASE("network cards of other GPUs are priced against direct ones", "[report][diagnose]") {
  const auto findings = [](const char* node) {
    Job job;
    job.nodes = 4;
    job.ranks = 32;
    const std::string text =
        job.text() + job.say(0, "Channel 00/1 : 0[0] -> 9[1] [send] via NET/IB/1(1)/GDRDMA");
    return diagnose(std::vector<TopologyFile>{machine(node), log_of(text)});
  };
  CHECK(find(findings("dgx-h100"), "pxn-slower") == nullptr);  // Over NVLink the detour is nearly free.
  const std::vector<Finding> pcie = findings("pcie-h100");
  const Finding* const finding = find(pcie, "pxn-slower");
  REQUIRE(finding != nullptr);
  CHECK(finding->loss() > 0.3);
  CHECK_THAT(finding->evidence.front().text, Contains("NET/IB/1(1)"));
}

TEST_CASE("a proxy's connections are counted from fourteen nodes on", "[report][diagnose]") {
  const auto text = [](std::int32_t nodes) {
    Job job;
    job.nodes = nodes;
    job.ranks = 8 * nodes;
    return job.text() + job.say(0, "Channel 00/1 : 0[0] -> 9[1] [send] via NET/IB/1(1)/GDRDMA") +
           job.say(0,
                   "16 coll channels, 0 collnet channels, 0 nvls channels, 16 p2p channels, 2 p2p channels "
                   "per peer");
  };
  CHECK(find(diagnose_log(text(13)), "many-proxy-connections") == nullptr);
  const std::vector<Finding> findings = diagnose_log(text(14));
  const Finding* const finding = find(findings, "many-proxy-connections");
  REQUIRE(finding != nullptr);
  // 8 GPUs of the node, 13 other nodes, 2 channels: 208; 8 slots of 128 KiB each: 208 MiB.
  CHECK_THAT(finding->title, Contains("208 connections"));
  CHECK_THAT(finding->cause, Contains("208.0 MiB"));
}

TEST_CASE("messages that take longer to post than to send are found", "[report][diagnose]") {
  const auto findings = [](const std::string& chunk) {
    Job job;
    job.nodes = 2;
    job.ranks = 16;
    const std::string text = job.text() +
                             job.say(0, "NCCL_P2P_NET_CHUNKSIZE set by environment to " + chunk + ".") +
                             job.say(0, "NCCL_NET_OVERHEAD set by environment to 1000.") +
                             job.say(0, "Channel 00/1 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA");
    return diagnose(std::vector<TopologyFile>{machine("dgx-h100"), log_of(text)});
  };
  CHECK(find(findings("131072"), "posting-late") == nullptr);
  const std::vector<Finding> small = findings("8192");
  const Finding* const finding = find(small, "posting-late");
  REQUIRE(finding != nullptr);
  CHECK(*finding->now_gb_per_s == Approx(8.192));  // 8 KiB a microsecond.
  CHECK(*finding->mended_gb_per_s > 40);
}

TEST_CASE("NCCL_ALGO is priced at the size where it costs most", "[report][diagnose]") {
  Job job;
  job.nodes = 2;
  job.ranks = 16;
  const std::string text = job.text() + job.say(0, "NCCL_ALGO set by environment to Tree");
  const std::vector<Finding> findings =
      diagnose(std::vector<TopologyFile>{machine("dgx-h100"), log_of(text)});
  const Finding* const finding = find(findings, "setting-NCCL_ALGO");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->cause, Contains("NVLSTree"));  // Where it takes over.
  REQUIRE(finding->now_gb_per_s);
  CHECK(*finding->now_gb_per_s < *finding->mended_gb_per_s);
  CHECK_THAT(finding->rate_of, Contains("by NCCL's prices"));
}

TEST_CASE("a choice that another algorithm beats on the links is found", "[report][diagnose]") {
  // Two DGX-A100, 256 MiB: rings 3.09 ms, trees 2.30 ms on the twin's links; at 64 MiB rings are faster.
  const auto findings = [](std::int64_t bytes) {
    Job job;
    job.nodes = 2;
    job.ranks = 16;
    const std::string text =
        job.text() +
        job.say(0, fmt::format("AllReduce: {} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..7}}",
                               bytes));
    return diagnose(std::vector<TopologyFile>{machine("dgx-a100"), log_of(text)});
  };
  CHECK(find(findings(64 << 20), "slower-algorithm") == nullptr);
  const std::vector<Finding> large = findings(256 << 20);
  const Finding* const finding = find(large, "slower-algorithm");
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->title, Contains("Tree is faster"));
  CHECK(finding->loss() == Approx(1 - 2.2965 / 3.0932).epsilon(0.05));
}

TEST_CASE("sound jobs have none of these findings", "[report][diagnose]") {
  Job job;
  job.nodes = 2;
  job.ranks = 16;
  std::string text = job.text() + job.rings(8, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15");
  text += job.say(0, "Channel 00/1 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA");
  text += job.say(0, "AllReduce: 16777216 Bytes -> Algo NVLSTREE proto SIMPLE channel{Lo..Hi}={0..7}");
  for (int r = 0; r < 16; ++r) text += job.enter(r, "AllReduce", 9);
  CHECK(to_table(diagnose(std::vector<TopologyFile>{machine("dgx-h100"), log_of(text)})) ==
        "Nothing found.\n");
}

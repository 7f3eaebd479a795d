// The machine's tree, paths, graphs and tuning in NCCL's log, and the hosts that follow from them.
#include <catch2/catch.hpp>

#include "tests/topology/nccl_log_files.hpp"
#include "topology/import/nccl_log_derive.hpp"
#include "topology/link_rates.hpp"

using namespace orrery;
using log_test::says;
using log_test::says_at;

namespace {

std::string info(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "n0:1:2 [0] NCCL INFO " + line + "\n";
  return text;
}

// Two GPUs under one switch of a Skylake host with a NIC, NVLinked through an NVSwitch: 12 · 20 = 240 GB/s.
const std::vector<std::string> kTree{
    "=== System : maxBw 24.0 totalBw 240.0 ===",
    "CPU/0-0 (1/1/2)",
    "+ PCI[24.0] - PCI/0-1000 (1000c01010de13b8)",
    "              + PCI[24.0] - GPU/0-3000 (0)",
    "                            + NVL[240.0] - NVS/0-0",
    "              + PCI[12.0] - GPU/0-41000 (1)",
    "                            + NVL[240.0] - NVS/0-0",
    "              + PCI[24.0] - NIC/0-5000",
    "                            + NET[25.0] - NET/0-0 (7/0200000000000001/2/25.000000)",
    "+ SYS[10.0] - CPU/0-1",
    "CPU/0-1 (1/1/2)",
    "==========================================",
    "GPU/0-3000 :GPU/0-3000 (0/5000.0/LOC) GPU/0-41000 (2/240.0/NVL) NET/0-0 (3/24.0/PIX) ",
};

NcclLog read_with(std::vector<std::string> more) {
  std::vector<std::string> lines = kTree;
  lines.insert(lines.end(), more.begin(), more.end());
  return read_nccl_log(info(lines), "log.txt");
}

}  // namespace

TEST_CASE("the machine's tree and paths", "[nccl_log]") {
  const NcclLog log = read_with({});
  REQUIRE(log.comms.size() == 1);
  REQUIRE(log.comms[0].systems.size() == 1);
  const LogSystem& system = log.comms[0].systems[0];
  CHECK(system.max_gb_per_s == 24);
  CHECK(system.total_gb_per_s == 240);
  REQUIRE(system.nodes.size() == 10);
  CHECK(system.nodes[2].id == LogNodeId{"GPU", 0, 0x3000});
  CHECK(system.nodes[2].parent == 1);
  CHECK(system.nodes[3].parent == 2);
  CHECK(system.nodes[3].reference);
  CHECK(system.nodes[4].parent == 1);
  CHECK(system.nodes[7].parent == 6);
  CHECK(system.nodes[8].parent == 0);
  CHECK(system.nodes[9].parent == -1);
  REQUIRE(system.paths.size() == 3);
  CHECK(system.paths[1].path == nccl::PathClass::kNvl);
  CHECK(system.paths[2].hops == 3);
  CHECK(log.comms[0].rank_count == 2);
}

TEST_CASE("a host from its tree has NCCL's rates", "[nccl_log]") {
  const HostImport import =
      hosts_from_log(read_with({"NET/IB : Using [0]mlx5_4:2/IB ; OOB eth0:192.0.2.1<0>"}));
  REQUIRE(import.hosts.size() == 1);
  const Host& host = import.hosts[0];
  CHECK(host.name == "n0");
  REQUIRE(host.cpus.size() == 2);
  CHECK(host.cpus[0].vendor == "GenuineIntel");
  REQUIRE(host.gpus.size() == 2);
  CHECK(host.gpus[1].rank == 1);
  const PciDevice& second = host.pci[static_cast<std::size_t>(host.gpus[1].pci)];
  CHECK(second.bus_id == "0000:41:00.0");
  CHECK(second.parent == 0);
  // 12 GB/s: 8 GT/s on 16 lanes.
  CHECK(pcie_bytes_per_s(second) == 12e9);
  CHECK(host.pci[0].vendor == 0x1000);
  CHECK(host.pci[0].subsystem_device == 0x13b8);
  // The rate per link that divides 240: 20 GB/s, twelve times.
  REQUIRE(host.gpus[0].nvlinks.size() == 1);
  CHECK(host.gpus[0].nvlinks[0].count == 12);
  CHECK(host.gpus[0].nvlinks[0].target_class == 0x068000);
  CHECK(says(import.notes, "taken as 12 NVLinks of 20.0 GB/s"));
  REQUIRE(host.nics.size() == 1);
  CHECK(host.nics[0].name == "mlx5_4");
  CHECK(host.nics[0].bytes_per_s == 25e9);
  CHECK(host.nics[0].port == 2);
  CHECK(host.nics[0].rail == 7);
  CHECK(host.nics[0].guid == "0x0200000000000001");
}

TEST_CASE("hosts that share NVLink, links that are down, CPUs without a number", "[nccl_log]") {
  const NcclLog log = read_nccl_log(
      info({"=== System : maxBw 721.8 totalBw 721.8 ===", "CPU/0-0 (3/-1/-1)", "+ C2C[223.6] - GPU/0-806000",
            "+ PCI[96.0] - GPU/0-806000 (0)", "              + NVL[721.8] - NVS/0-0",
            "              + C2C[223.6] - CPU/0-0", "CPU/1-FFFFFFFFFFFFFFFF (3/-1/-1)",
            "+ PCI[5000.0] - NIC/1-0", "                + NET[0.3] - NET/1-0 (0200000000000001/1/0.312500)",
            "+ PCI[96.0] - GPU/1-906000 (1)", "              + NVL[0.0] - NVS/0-0"}),
      "log.txt");
  CHECK(says_at(log.notes, 11, "GPU/1-906000 has no working NVLink"));
  const HostImport import = hosts_from_log(log);
  REQUIRE(import.hosts.size() == 2);
  CHECK(import.hosts[0].name == "n0#0");
  CHECK(import.hosts[0].gpus[0].c2c_bytes_per_s == 223.6e9);
  CHECK(import.hosts[0].gpus[0].compute_capability == 100);
  CHECK(import.hosts[0].gpus[0].nvlinks[0].count == 18);  // 18 · 40.1 = 721.8
  CHECK(import.hosts[0].pci[0].bus_id == "0008:06:00.0");
  CHECK(import.hosts[1].gpus[0].nvlinks[0].count == 0);
  CHECK(import.hosts[1].cpus[0].numa == -1);
  CHECK(import.hosts[1].nics[0].pci == -1);
  CHECK(import.hosts[1].nics[0].bytes_per_s == 312.5e6);
}

TEST_CASE("a tree that begins midway, lost its blanks or has torn lines is noted", "[nccl_log]") {
  const NcclLog midway = read_nccl_log(
      info({"+ PCI[6.0] - PCI/0-1000 (1002147800000000)", "             + PCI[24.0] - GPU/0-3000 (0)"}),
      "log.txt");
  CHECK(says(midway.notes, "isn't in the log: the tree may lack its beginning"));
  CHECK(says(midway.notes, "everything is put under CPU 0"));
  CHECK(hosts_from_log(midway).hosts[0].gpus.size() == 1);
  const NcclLog flat = read_nccl_log(info({"=== System : maxBw 24.0 totalBw 24.0 ===", "CPU/0-0 (1/1/2)",
                                           "+ PCI[24.0] - GPU/0-3000 (0)", "+ NVL[240.0] - NVS/0-0"}),
                                     "log.txt");
  CHECK(says_at(flat.notes, 4, "hangs where it can't"));
  const NcclLog torn = read_with({"GPU/0-41000 :GPU/0-3000 (2/240.0/NVL) GPU/0-41"});
  CHECK(says_at(torn.notes, 14, "the paths of GPU/41000 are cut off"));
  const NcclLog cut = read_nccl_log(
      info({"=== System : maxBw 24.0 totalBw 24.0 ===", "CPU/0-0 (1/1/2)", "+ PCI[24.0] - GPU/0-30"}) + "\n" +
          info({"+ PCI[24"}),
      "log.txt");
  CHECK(says_at(cut.notes, 5, "tree is torn"));
}

TEST_CASE("graphs of the search with device numbers", "[nccl_log]") {
  const NcclLog log =
      read_with({"Pattern 4, crossNic 2, nChannels 1, bw 24.000000/12.000000, type NVL/PIX, sameChannels 0",
                 " 0 : NET/0-0 GPU/0-41000 GPU/0-3000 NET/0-0",
                 "Pattern 3, crossNic 0, nChannels 2, bw 12.000000/12.000000, type NVL/PIX, sameChannels 1",
                 " 0 : NET/0-0 GPU/0-3000 GPU/0-41000 NET/0-0",
                 "Pattern 5, crossNic 0, nChannels 0, bw 0.000000/0.000000, type NVL/PIX, sameChannels 0"});
  REQUIRE(log.comms[0].graphs.size() == 1);
  const LogGraphs& graphs = log.comms[0].graphs[0];
  REQUIRE(graphs.graphs.size() == 3);
  const nccl::Graph& ring = graphs.graphs[0];
  CHECK(ring.kind == nccl::GraphKind::kRing);
  CHECK(ring.cross_nic == 2);
  CHECK(ring.node_gb_per_s == 24);
  CHECK(ring.network_gb_per_s == 12);
  CHECK(ring.network_path == nccl::PathClass::kPix);
  CHECK_FALSE(ring.same_channels);
  REQUIRE(ring.channels.size() == 1);
  CHECK(ring.channels[0].gpus == std::vector<std::int64_t>{1, 0});
  CHECK(ring.channels[0].entry_nic == 0);
  CHECK(ring.channels[0].exit_nic == 0);
  CHECK(graphs.graphs[1].kind == nccl::GraphKind::kTree);
  CHECK(graphs.graphs[2].kind == nccl::GraphKind::kNvls);
  CHECK(says_at(log.notes, 16, "a graph has 2 channels, and 1 of them stand in the log"));
  // Without the tree nobody says which device 41000 is.
  const NcclLog bare = read_nccl_log(
      info({"Pattern 4, crossNic 0, nChannels 1, bw 0.100000/0.100000, type SYS/SYS, sameChannels 1",
            " 0 : GPU/3000 GPU/41000", "Could not find a path for pattern 4, falling back to simple order"}),
      "log.txt");
  CHECK(says_at(bare.notes, 1, "which device"));
  CHECK(says_at(bare.notes, 3, "NCCL's search failed"));
  CHECK(bare.warnings.size() == 1);
}

TEST_CASE("tuning tables of both forms, also cut", "[nccl_log]") {
  const NcclLog recent = read_nccl_log(info({"  Algorithm   |                            Tree                "
                                             "  |                            Ring                  |",
                                             "  Protocol    |             LL |          LL128 |         "
                                             "Simple |             LL |          LL128 |         Simple |",
                                             " Max NThreads |            512 |            640 |            "
                                             "512 |            512 |            640 |            512 |",
                                             "    AllReduce |     8.0/  61.1 |    16.5/ 180.6 |    16.4/ "
                                             "232.2 |     7.8/ 141.0 |    17.8/ 331.2 |    15.2/"}),
                                       "log.txt");
  REQUIRE(recent.comms.size() == 1);
  REQUIRE(recent.comms[0].tuning.size() == 1);
  const LogTuningTable& table = recent.comms[0].tuning[0];
  CHECK(table.threads.size() == 6);
  REQUIRE(table.cells.size() == 5);
  CHECK(table.cells[4] == LogTuningCell{"AllReduce", "Ring", "LL128", 17.8, 331.2});
  CHECK(says_at(recent.notes, 4, "cut off behind 5 cells"));
  const NcclLog old = read_nccl_log(
      info({"Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Tree/Simple |    Ring/    LL |",
            " Max NThreads |            512 |            640 |            512 |            512 |",
            "    Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |     4.6/   8.0 |"}),
      "log.txt");
  REQUIRE(old.comms[0].tuning[0].cells.size() == 4);
  CHECK(old.comms[0].tuning[0].cells[3] == LogTuningCell{"Broadcast", "Ring", "LL", 4.6, 8.0});
}

TEST_CASE("what was chosen for calls, by name and by number", "[nccl_log]") {
  const NcclLog log =
      read_nccl_log(info({"AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}",
                          "AllReduce: 33554432 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..31}",
                          "AllReduce: 1024 Bytes -> Algo 0 proto 1 time 12.500000",
                          "2048 Bytes -> Algo 1 proto 0 time 3.0", "AllReduce: 512 Bytes -> Algo NVLS_TREE"}),
                    "log.txt");
  const std::vector<LogChoice>& choices = log.comms[0].choices;
  REQUIRE(choices.size() == 3);
  CHECK(choices[0].calls == 2);
  CHECK(choices[0].algorithm == "Ring");
  CHECK(choices[0].last_channel == 31);
  CHECK(choices[1].algorithm == "Tree");
  CHECK(choices[1].protocol == "LL128");
  CHECK(choices[1].time_us == 12.5);
  CHECK(choices[2].function.empty());
  CHECK(says_at(log.notes, 5, "torn"));
}

TEST_CASE("devices of ranks, orders of rings, and what to ask for where there is no tree", "[nccl_log]") {
  const NcclLog log = read_nccl_log(
      "n0:1:2 [0] NCCL INFO comm 0x1a rank 0 nranks 2 cudaDev 0 nvmlDev 5 busId c1000 commId 0x9 - Init "
      "START\n"
      "n0:3:4 [1] NCCL INFO comm 0x1b rank 1 nranks 2 cudaDev 1 busId 806000 - Init COMPLETE\n"
      "n0:1:2 [0] NCCL INFO Channel 00/03 : 0 1\nn0:1:2 [0] NCCL INFO Channel 01/03 : 0 1\nn0:1:2 [0] NCCL "
      "INFO Channel 02/03 : 0\n",
      "log.txt");
  const std::vector<RankDevice> devices = rank_devices(log);
  REQUIRE(devices.size() == 2);
  CHECK(devices[0].device == 5);
  CHECK(devices[0].device_is_nvml);
  CHECK(devices[0].bus_id == "0000:c1:00.0");
  CHECK(devices[1].device == 1);
  CHECK_FALSE(devices[1].device_is_nvml);
  CHECK(devices[1].bus_id == "0008:06:00.0");
  CHECK(ring_orders(log.comms[0]) == std::vector<std::vector<std::int32_t>>{{0, 1}});
  const HostImport import = hosts_from_log(log);
  CHECK(import.hosts.empty());
  REQUIRE(import.notes.size() == 1);
  CHECK(import.notes[0].remedy.find("NCCL_DEBUG_SUBSYS=INIT,GRAPH") != std::string::npos);
}

TEST_CASE("the last operation of each rank is kept", "[nccl_log]") {
  const auto line = [](int rank, const std::string& text) {
    return "n0:" + std::to_string(7 + rank) + ":1 [" + std::to_string(rank) + "] NCCL INFO " + text + "\n";
  };
  std::string text;
  for (int r = 0; r < 2; ++r)
    text += line(r, "comm 0x" + std::to_string(50 + r) + " rank " + std::to_string(r) +
                        " nRanks 2 nNodes 1 localRanks 2 localRank " + std::to_string(r) + " MNNVL 0");
  const std::string operands = " sendbuff 0x1 recvbuff 0x2 count 33 datatype 7 op 0 root 0 comm 0x5";
  text += line(1, "AllReduce: opCount ff" + operands + "1 [nranks=2] stream 0x3");
  text += line(1, "AllGather: opCount 100" + operands + "1 [nranks=2] stream 0x3");
  text += line(0, "AllReduce: opCount 2" + operands + "9 [nranks=2] stream 0x3");  // Nobody's communicator.
  text += line(0, "AllReduce: opCount x" + operands + "0 [nranks=2] stream 0x3");  // Torn.
  const NcclLog log = read_nccl_log(text, "log.txt");
  REQUIRE(log.comms.size() == 1);
  REQUIRE(log.comms[0].last_operations.size() == 1);
  const LogOperation& last = log.comms[0].last_operations[0];
  CHECK(last.rank == 1);
  CHECK(last.function == "AllGather");
  CHECK(last.number == 256);
  CHECK(last.elements == 33);
  CHECK(last.line == 4);
}

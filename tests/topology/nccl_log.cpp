// NCCL's debug log: every quirk of the published logs by a small text of our own.
#include "topology/import/nccl_log.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/topology/nccl_log_files.hpp"

using namespace orrery;
using log_test::says;
using log_test::says_at;

namespace {

using Ranks = std::vector<std::int32_t>;

NcclLog read(const std::string& text) { return read_nccl_log(text, "log.txt"); }

const LogComm& only_comm(const NcclLog& log) {
  REQUIRE(log.comms.size() == 1);
  return log.comms.front();
}

// Rank 0 of four on one host, as NCCL 2.20 and later say it.
const std::string kFour =
    "n0:10:11 [0] NCCL INFO NCCL version 2.22.3+cuda12.5\n"
    "n0:10:11 [0] NCCL INFO ncclCommInitRank comm 0x1a rank 0 nranks 4 cudaDev 0 nvmlDev 2 busId 18000 "
    "commId 0x77 - Init START\n"
    "n0:10:11 [0] NCCL INFO comm 0x1a rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n"
    "n0:10:11 [0] NCCL INFO Channel 00/02 : 0 1 2 3\n"
    "n0:10:11 [0] NCCL INFO Channel 01/02 : 0 3 2 1\n"
    "n0:10:11 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 3/-1/-1->0->1\n";

}  // namespace

TEST_CASE("a communicator's size, rings, trees and ranks", "[nccl_log]") {
  const NcclLog log = read(kFour);
  CHECK(log.notes.empty());
  CHECK(log.version == "2.22.3");
  CHECK(log.cuda_version == "12.5");
  const LogComm& comm = only_comm(log);
  CHECK(comm.id == "0x77");
  CHECK(comm.rank_count == 4);
  CHECK(comm.rank_count_is_stated);
  CHECK(comm.node_count == 1);
  CHECK(comm.mnnvl == 0);
  REQUIRE(comm.rings.size() == 2);
  CHECK(comm.rings[0].complete);
  CHECK(comm.rings[1].ranks == Ranks{0, 3, 2, 1});
  REQUIRE(comm.trees.size() == 2);
  CHECK(comm.trees[1].up == 1);
  CHECK(comm.trees[1].down == std::array<std::int32_t, 3>{3, -1, -1});
  REQUIRE(comm.ranks.size() == 1);
  CHECK(comm.ranks[0].host == "n0");
  CHECK(comm.ranks[0].cuda_device == 0);
  CHECK(comm.ranks[0].nvml_device == 2);
  CHECK(comm.ranks[0].bus_id == "18000");
}

TEST_CASE("what launchers and terminals put around lines doesn't matter", "[nccl_log]") {
  const auto prefixed = [](const std::string& prefix, const std::string& end) {
    std::string text;
    std::size_t at = 0;
    while (at < kFour.size()) {
      const std::size_t stop = kFour.find('\n', at);
      text += prefix + kFour.substr(at, stop - at) + end;
      at = stop + 1;
    }
    return text;
  };
  for (const std::string prefix :
       {"0: ", " 0: ", "[1,0]<stdout>:", "[2026-04-28 14:14:48] ", "(Worker pid=12) ", "job|", "\x1b[32m"}) {
    for (const std::string end : {"\n", "\r\n", "\n\n", "\n# a remark in between\n", "\x1b[0m\n"}) {
      CAPTURE(prefix, end);
      const NcclLog log = read("training begins\n" + prefixed(prefix, end));
      CHECK(log.notes.empty());
      CHECK(log.version == "2.22.3");
      CHECK(only_comm(log).rings[1].ranks == Ranks{0, 3, 2, 1});
      CHECK(only_comm(log).ranks[0].host == "n0");
    }
  }
}

TEST_CASE("a ring that is cut off is never complete", "[nccl_log]") {
  const std::string head = kFour.substr(0, kFour.find("Channel 01/02"));
  // Cut by NCCL itself, by a paste, within a number's place, or by a line that runs into it.
  for (const std::string rest :
       {"Channel 01/02 : 0 3 ...\n", "Channel 01/02 : 0 3 2\n", "Channel 01/02 : 0 3 2",
        "Channel 01/02 : 0 3 2 3\n", "Channel 01/02 : 0 3 2 1x\n",
        "Channel 01/02 : 0 3 2 1n0:10:12 [1] NCCL INFO Launch mode Parallel\n"}) {
    CAPTURE(rest);
    const NcclLog log = read(head + rest);
    REQUIRE(only_comm(log).rings.size() == 2);
    CHECK_FALSE(only_comm(log).rings[1].complete);
    CHECK(says_at(log.notes, 5, "channel 1 is cut off or torn"));
  }
  const NcclLog without = read(head);
  CHECK(says(without.notes, "a message about rings, trees or the machine is torn") == false);
  CHECK(says(without.notes, "1 of 2 channels have their ring"));
}

TEST_CASE("a cut ring is completed by what the ranks say of their neighbours", "[nccl_log]") {
  const std::string cut =
      "n0:10:11 [0] NCCL INFO comm 0x1a rank 0 nRanks 6 nNodes 1 localRanks 6 localRank 0 MNNVL 0\n"
      "n0:10:11 [0] NCCL INFO Channel 00/01 : 0 2 4 ...\n";
  const auto link = [](int rank, int previous, int next) {
    const std::string r = std::to_string(rank);
    return "n0:1" + r + ":1" + r + " [" + r + "] NCCL INFO Ring 00 : " + std::to_string(previous) + " -> " +
           r + " -> " + std::to_string(next) + "\n";
  };
  // 0 2 4 1 3 5. Of 0 → 2 → 4 the last number may be cut, so 4's neighbours must come from elsewhere.
  const NcclLog whole = read(cut + link(2, 0, 4) + link(1, 4, 3) + link(5, 3, 0));
  REQUIRE(only_comm(whole).rings[0].complete);
  CHECK(only_comm(whole).rings[0].ranks == Ranks{0, 2, 4, 1, 3, 5});
  CHECK(says_at(whole.notes, 2, "completed from the ranks' Ring lines"));
  // Without rank 5's line nobody knows who follows 3.
  const NcclLog open = read(cut + link(2, 0, 4) + link(1, 4, 3));
  CHECK_FALSE(only_comm(open).rings[0].complete);
  // A rank that contradicts: two follow 2.
  const NcclLog odd = read(cut + link(2, 0, 5) + link(1, 4, 3) + link(5, 3, 0) + link(4, 2, 1));
  CHECK_FALSE(only_comm(odd).rings[0].complete);
}

TEST_CASE("a cut ring is completed by its connections, if they make one ring", "[nccl_log]") {
  const std::string cut =
      "n0:10:11 [0] NCCL INFO comm 0x1a rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n"
      "n0:10:11 [0] NCCL INFO Channel 00/01 : 0 2\n";
  const std::string connections =
      "n0:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[2] via P2P/IPC\n"
      "n0:12:13 [2] NCCL INFO Channel 00/0 : 2[2] -> 1[1] via P2P/IPC\n"
      "n0:14:15 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[3] via P2P/IPC\n"
      "n0:16:17 [3] NCCL INFO Channel 00/0 : 3[3] -> 0[0] via P2P/IPC\n";
  const NcclLog log = read(cut + connections);
  CHECK(only_comm(log).rings[0].complete);
  CHECK(only_comm(log).rings[0].ranks == Ranks{0, 2, 1, 3});
  CHECK(says(log.notes, "completed from the connections"));
  // A tree's edge among them, from before the rings were connected: two follow rank 0.
  const NcclLog mixed =
      read(cut + "n0:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n" + connections);
  CHECK_FALSE(only_comm(mixed).rings[0].complete);
  // After "Connected all rings" it is known for a tree's.
  const NcclLog later = read(cut + connections +
                             "n0:10:11 [0] NCCL INFO Connected all rings\n"
                             "n0:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n");
  CHECK(only_comm(later).rings[0].complete);
}

TEST_CASE("a ring against the ranks' own words is not complete", "[nccl_log]") {
  const NcclLog log = read(kFour + "n0:10:11 [0] NCCL INFO Ring 01 : 1 -> 0 -> 2\n");
  CHECK(only_comm(log).rings[0].complete);
  CHECK_FALSE(only_comm(log).rings[1].complete);
  CHECK(says_at(log.notes, 5, "isn't the one that the ranks say"));
}

TEST_CASE("where nothing states the number of ranks it is assumed, and said so", "[nccl_log]") {
  const NcclLog by_rings = read("n0:1:2 [0] NCCL INFO Channel 00/01 :    0   2   1\n");
  CHECK(only_comm(by_rings).rank_count == 3);
  CHECK_FALSE(only_comm(by_rings).rank_count_is_stated);
  CHECK(says(by_rings.notes, "3 by the highest rank"));
  // 8 · 5 = 40 is the ring's LL threshold of five ranks.
  const NcclLog by_threshold = read(
      "n0:1:2 [0] NCCL INFO Channel 00/01 : 0 2 1\nn0:1:2 [0] NCCL INFO threadThresholds 8/8/64 | 40/8/64 | "
      "512 | 512\n");
  CHECK(only_comm(by_threshold).rank_count == 5);
  CHECK_FALSE(only_comm(by_threshold).rings[0].complete);
  CHECK(says(by_threshold.notes, "5 by its thread thresholds"));
}

TEST_CASE("the trees of every version", "[nccl_log]") {
  const auto first_tree = [](const std::string& shape) {
    const NcclLog log = read("n0:1:2 [1] NCCL INFO Trees [0] " + shape + "\n");
    REQUIRE(only_comm(log).trees.size() == 1);
    return only_comm(log).trees[0];
  };
  // Since 2.8; up to 2.7 both trees; 2.4 with the parent first and two or three children.
  for (const std::string shape :
       {"2/-1/-1->1->0", "2/-1/-1->1->0|0->1->2/-1/-1", "0->1->2/-1/-1", "0->1->2/-1"}) {
    CAPTURE(shape);
    const LogTree tree = first_tree(shape);
    CHECK(tree.rank == 1);
    CHECK(tree.up == 0);
    CHECK(tree.down == std::array<std::int32_t, 3>{2, -1, -1});
  }
  const NcclLog lines = read(
      "n0:1:2 [0] NCCL INFO Tree 0 : -1 -> 0 -> 2/-1/-1\nn0:1:2 [0] NCCL INFO Tree 1 : 1 -> 0 -> 2/-1/-1\n");
  REQUIRE(only_comm(lines).trees.size() == 2);
  CHECK(only_comm(lines).trees[1].up == 1);
  const NcclLog cut = read("n0:1:2 [1] NCCL INFO Trees [0] 2/-1/-1->1->0 [1] 2/-1/-1->1\n");
  CHECK(only_comm(cut).trees.size() == 1);
  CHECK(says_at(cut.notes, 1, "trees are cut off behind 1 channels"));
  const NcclLog two = read("n0:1:2 [1] NCCL INFO Trees [0] 2/-1/-1->1->0|0->1->3/-1/-1\n");
  CHECK(says(two.notes, "the tree down isn't the tree up"));
  // Rank 1 calls rank 0 its parent, who has rank 2 as its only child.
  const NcclLog odd =
      read("n0:1:2 [0] NCCL INFO Trees [0] 2/-1/-1->0->-1\nn0:3:4 [1] NCCL INFO Trees [0] -1/-1/-1->1->0\n");
  CHECK(says(odd.notes, "rank 1 hangs off rank 0, which doesn't say so"));
}

TEST_CASE("connections: transport, card, proxy, GPUDirect", "[nccl_log]") {
  const auto one = [](const std::string& text) {
    const NcclLog log = read("n0:1:2 [3] NCCL INFO " + text + "\n");
    REQUIRE(only_comm(log).connections.size() == 1);
    return only_comm(log).connections[0];
  };
  CHECK(one("Channel 00/0 : 3[3] -> 4[4] via P2P/CUMEM").transport == LogTransport::kP2pCumem);
  CHECK(one("Channel 00/0 : 3[3] -> 4[4] via P2P/MNNVL").transport == LogTransport::kP2pMnnvl);
  CHECK(one("Channel 00 : 3[c1000] -> 4[1000] via P2P/IPC/read").read);
  CHECK(one("Channel 00 : 3[3] -> 4[4] via P2P/direct pointer").transport == LogTransport::kP2pDirect);
  CHECK(one("Channel 00 : 3[3] -> 4[4] via P2P/indirect/5[5]").transport == LogTransport::kP2pIndirect);
  CHECK(one("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct").transport == LogTransport::kShm);
  CHECK(one("Ring 00 : 3[b0] -> 0[80] via direct shared memory").transport == LogTransport::kShm);
  const LogConnection net = one("Channel 02/0 : 3[3] -> 4[0] [send] via NET/IBext/5(2)/GDRDMA");
  CHECK(net.transport == LogTransport::kNet);
  CHECK(net.network == "IBext");
  CHECK(net.net_device == 5);
  CHECK(net.proxy_rank == 2);
  CHECK(net.gpu_direct_rdma);
  CHECK(net.send == true);
  const LogConnection named = one("Channel 00/1 : 3[3] -> 4[0] [receive] via NET/AWS Libfabric/1/Shared");
  CHECK(named.network == "AWS Libfabric");
  CHECK(named.index == 1);
  CHECK_FALSE(named.gpu_direct_rdma);
  CHECK(named.send == false);
  for (const std::string torn : {"Channel 00/0 : 3[3] -> 4[4] via P2", "Channel 00/0 : 3[3] -> 4[4",
                                 "Channel 00/0 : 3[3", "Channel 00/0 : 3[3] -> 4[0] [send] via NET/IB/0(2"}) {
    CAPTURE(torn);
    const NcclLog log = read(kFour + "n0:10:11 [0] NCCL INFO " + torn + "\n");
    CHECK(log.comms[0].connections.empty());
    CHECK(says_at(log.notes, 7, "torn"));
  }
}

TEST_CASE("bus ids in brackets up to 2.17, device numbers later", "[nccl_log]") {
  const NcclLog old = read("n0:1:2 [1] NCCL INFO Channel 00 : 1[41000] -> 2[81000] via P2P/IPC\n");
  CHECK(only_comm(old).ranks[1].bus_id == "81000");
  CHECK(only_comm(old).ranks[1].nvml_device == -1);
  const NcclLog recent = read("n0:1:2 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[6] via P2P/IPC\n");
  CHECK(only_comm(recent).ranks[1].nvml_device == 6);
}

TEST_CASE("several communicators in one log are told apart", "[nccl_log]") {
  // Two of two ranks each, on two hosts at once, then one of four: the same processes, other threads.
  const auto ring = [](const std::string& who, const std::string& order) {
    return who + " NCCL INFO Channel 00/01 : " + order + "\n";
  };
  const auto tree = [](const std::string& who, const std::string& shape) {
    return who + " NCCL INFO Trees [0] " + shape + "\n";
  };
  const NcclLog log = read(ring("a:1:10 [0]", "0 1") + ring("b:1:30 [0]", "0 1") +
                           tree("a:1:10 [0]", "1/-1/-1->0->-1") + tree("b:2:40 [1]", "-1/-1/-1->1->0") +
                           tree("a:2:20 [1]", "-1/-1/-1->1->0") + tree("b:1:30 [0]", "1/-1/-1->0->-1") +
                           ring("a:1:11 [0]", "0 1 2 3") + tree("a:2:21 [1]", "2/-1/-1->1->0") +
                           tree("b:1:31 [0]", "3/-1/-1->2->1") + tree("b:2:41 [1]", "-1/-1/-1->3->2"));
  REQUIRE(log.comms.size() == 3);
  for (const LogComm& comm : log.comms) REQUIRE(comm.ranks.size() >= 2);
  CHECK(log.comms[0].ranks[1].host == "a");
  CHECK(log.comms[1].ranks[1].host == "b");
  CHECK(log.comms[2].rings[0].ranks == Ranks{0, 1, 2, 3});
  REQUIRE(log.comms[2].ranks.size() == 4);
  CHECK(log.comms[2].ranks[3].node == 1);
  // The same thread, by its communicators' addresses and ids.
  std::string second = kFour;
  for (std::size_t at = 0; (at = second.find("0x1a", at)) != std::string::npos;)
    second.replace(at, 4, "0x2b");
  second.replace(second.find("0x77"), 4, "0x88");
  const NcclLog twice = read(kFour + second);
  REQUIRE(twice.comms.size() == 2);
  CHECK(twice.comms[1].id == "0x88");
}

TEST_CASE("torn lines are noted with their place", "[nccl_log]") {
  // The second process writes into the first one's line, which goes on below.
  const NcclLog log = read(
      "n0:1:2 [0] NCCL INFO comm 0x1a rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n"
      "n0:1:2 [0] NCCL INFO Channel 00/01 : 0 1 n0:3:4 [1] NCCL INFO Trees [0] 2/-1/-1->1->0\n"
      "2 3\n"
      "n0:3:4 [1] NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P/IPC\n"
      "] -> 3[3] via P2P/IPC\n");
  CHECK_FALSE(log.comms[0].rings[0].complete);
  CHECK(log.comms[0].trees.size() == 1);
  CHECK(says_at(log.notes, 2, "two messages share this line"));
  CHECK(says_at(log.notes, 5, "the rest of a torn message"));
  // Glued without a blank: the host is the one that other lines know.
  const NcclLog glued = read(
      "n0:3:4 [1] NCCL INFO Using network IB\nn0:1:2 [0] NCCL INFO Channel 00/01 : 0 1n0:3:4 [1] NCCL INFO "
      "Trees [0] -1/-1/-1->1->0\n");
  CHECK(glued.comms[0].ranks[0].host == "n0");
  const NcclLog damaged = read(kFour + ":11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n");
  CHECK(says_at(damaged.notes, 7, "the prefix"));
}

TEST_CASE("messages whose prefix was cut off are read as one communicator's", "[nccl_log]") {
  const NcclLog log = read(
      "Channel 00/02 : 0 1 2\nChannel 01/02 : 0 2 1\nTrees [0] 1/-1/-1->0->-1 [1] 2/-1/-1->0->-1\nTrees [0] "
      "2/-1/-1->1->0 [1] -1/-1/-1->1->2\n");
  CHECK(only_comm(log).rings.size() == 2);
  CHECK(only_comm(log).trees.size() == 4);
  CHECK(says_at(log.notes, 1, "without NCCL's prefix"));
}

TEST_CASE("counts of channels in every form, thresholds, heads", "[nccl_log]") {
  const auto counts = [](const std::string& text) {
    const NcclLog log = read("n0:1:2 [0] NCCL INFO " + text + "\n");
    REQUIRE(only_comm(log).channel_counts);
    return *only_comm(log).channel_counts;
  };
  CHECK(counts("4 coll channels, 8 p2p channels, 2 p2p channels per peer") ==
        LogChannelCounts{4, 0, 0, 8, 2});
  CHECK(counts("16 coll channels, 12 nvls channels, 16 p2p channels, 2 p2p channels per peer") ==
        LogChannelCounts{16, 0, 12, 16, 2});
  CHECK(counts("32 coll channels, 31 collnet channels, 30 nvls channels, 29 p2p channels, 28 p2p channels "
               "per peer") == LogChannelCounts{32, 31, 30, 29, 28});
  const NcclLog log = read(kFour +
                           "n0:10:11 [0] NCCL INFO NVLS Head  0:  0  2\n"
                           "n0:10:11 [0] NCCL INFO NVLS Head 1: 1 3\n"
                           "n0:10:11 [0] NCCL INFO threadThresholds 8/8/64 | 32/8/64 | 512 | 512\n"
                           "n0:10:11 [0] NCCL INFO 4 coll channels, 8 p2p\n");
  CHECK(log.comms[0].nvls_heads == std::vector<Ranks>{{0, 2}, {1, 3}});
  CHECK(log.comms[0].thread_thresholds == std::vector<std::int32_t>{8, 8, 64, 32, 8, 64, 512, 512});
  CHECK(says_at(log.notes, 10, "counts of channels are torn"));
}

TEST_CASE("variables, cards, GPUDirect, warnings, timings", "[nccl_log]") {
  const NcclLog log = read(
      kFour +
      "n0:10:11 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\n"
      "n1:12:13 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 1.\n"
      "n0:10:11 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib0,ib1\n"
      "n0:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_3:2/RoCE [RO]; OOB "
      "ib0:192.0.2.1<0>\n"
      "n0:10:11 [0] NCCL INFO NET/Socket : Using [0]eth2:192.0.2.1<0>\n"
      "n0:10:11 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'rxe0'\n"
      "n0:10:11 [0] NCCL INFO GPU Direct RDMA Enabled for GPU 18000 / HCA 0 (distance 4 <= 5), read 1\n"
      "[2026-05-05 06:16:47] n0:10:11 [0] plugin/net.cc:334 NCCL WARN Failed to initialize any NET plugin\n"
      "n0:10:11 [0] NCCL INFO Init timings - ncclCommInitRank: rank 0 nranks 4 total 0.37 (kernels 0.28, "
      "alloc 0.09)\n");
  REQUIRE(log.environment.size() == 3);
  CHECK(log.environment[0].value == "0");
  CHECK(log.environment[2].value == "ib0,ib1");
  CHECK(says_at(log.notes, 8, "NCCL_NVLS_ENABLE is 1 here and something else"));
  REQUIRE(log.nic_lists.size() == 2);
  CHECK(log.nic_lists[0].relaxed_ordering);
  REQUIRE(log.nic_lists[0].nics.size() == 2);
  CHECK(log.nic_lists[0].nics[0].sharp);
  CHECK(log.nic_lists[0].nics[1] == LogNic{1, 2, "mlx5_3", "RoCE", false});
  CHECK(log.nic_lists[1].nics[0].name == "eth2");
  REQUIRE(log.gpu_direct.size() == 2);
  CHECK_FALSE(log.gpu_direct[0].enabled);
  CHECK(log.gpu_direct[0].nic == 1);
  CHECK(log.gpu_direct[1].distance == 4);
  CHECK(log.gpu_direct[1].limit == 5);
  REQUIRE(log.warnings.size() == 1);
  CHECK(log.warnings[0].text == "Failed to initialize any NET plugin");
  REQUIRE(log.comms[0].timings.size() == 1);
  CHECK(log.comms[0].timings[0].total_s == 0.37);
  CHECK(log.comms[0].timings[0].phases_s[1] == std::pair<std::string, double>("alloc", 0.09));
}

TEST_CASE("AMD's log is told, two versions in one log are noted, and other text is refused", "[nccl_log]") {
  CHECK(read("RCCL version : 2.22.3-develop:abc\nn0:1:2 [0] NCCL INFO Channel 00/01 : 0 1\n").rccl);
  CHECK(says_at(read(kFour + "n1:1:2 [0] NCCL INFO NCCL version 2.18.5+cuda12.2\n").notes, 7,
                "NCCL 2.18.5 here, 2.22.3 above"));
  CHECK_THROWS_WITH(read("epoch 1 loss 2.3\n"), Catch::Contains("log.txt: no line of NCCL's debug log") &&
                                                    Catch::Contains("NCCL_DEBUG=INFO"));
  CHECK_THROWS_AS(read(""), Error);
}

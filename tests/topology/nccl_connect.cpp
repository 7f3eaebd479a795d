#include "topology/nccl/nccl_connect.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "topology/import/node_host.hpp"
#include "topology/nccl/nccl_variables.hpp"

using namespace orrery;
using namespace orrery::nccl;

TEST_CASE("the double tree over six nodes is the one of a real log", "[topology]") {
  // 6×8 H100, MLPerf 4.1: root 0 has 4; 4 has 2 and 5; 2 has 1 and 3. The second one is mirrored: 5 has 1, 1
  // has 3 and 0, 3 has 4 and 2.
  const auto down = [](std::int32_t node, std::size_t tree) { return double_tree(6, node)[tree].down; };
  using Pair = std::array<std::int32_t, 2>;
  CHECK(down(0, 0) == Pair{-1, 4});
  CHECK(down(4, 0) == Pair{2, 5});
  CHECK(down(2, 0) == Pair{1, 3});
  CHECK(down(5, 1) == Pair{-1, 1});
  CHECK(down(1, 1) == Pair{3, 0});
  CHECK(down(3, 1) == Pair{4, 2});
}

TEST_CASE("both trees reach every node once from one root", "[topology]") {
  for (const std::int32_t nodes : {1, 2, 3, 5, 8, 13})
    for (std::size_t tree = 0; tree < 2; ++tree) {
      INFO(nodes << " nodes, tree " << tree);
      std::int32_t roots = 0, edges = 0;
      for (std::int32_t node = 0; node < nodes; ++node) {
        const TreeNode place = double_tree(nodes, node)[tree];
        if (place.up < 0) ++roots;
        for (std::size_t child = 0; child < 2; ++child)
          if (place.down[child] >= 0) {
            ++edges;
            const TreeNode below = double_tree(nodes, place.down[child])[tree];
            CHECK(below.up == node);
            CHECK(below.child == static_cast<std::int32_t>(child));
          }
      }
      CHECK(roots == 1);
      CHECK(edges == nodes - 1);
    }
}

namespace {

// One GPU per node and a port each: a ring and a tree of one channel.
NodeGraphs node_of_one(std::int32_t rank) {
  NodeGraphs node;
  for (Graph* graph : {&node.graphs.ring, &node.graphs.tree}) {
    graph->node_gb_per_s = graph->network_gb_per_s = 12;
    graph->channels = {{{0}, 0, 0}};
  }
  node.graphs.tree.pattern = Pattern::kTree;
  node.ranks = {{0, rank}};
  return node;
}

}  // namespace

TEST_CASE("three nodes with a GPU each are connected as a real log says", "[topology]") {
  // "Tree 0 : -1 -> 0 -> 2", "Tree 1 : 1 -> 0 -> 2", ring 0 1 2; nodes stand by their ranks.
  const Channels channels = connect_nodes({node_of_one(2), node_of_one(0), node_of_one(1)});
  REQUIRE(channels.rings.size() == 2);
  CHECK(channels.rings[0] == std::vector<std::int32_t>{0, 1, 2});
  CHECK(channels.trees[0][0] == TreeLinks{-1, {2, -1, -1}});
  CHECK(channels.trees[1][0] == TreeLinks{1, {2, -1, -1}});
  CHECK(trees_text(channels, 0) == "Trees [0] 2/-1/-1->0->-1 [1] 2/-1/-1->0->1");
  CHECK(rings_text(channels).starts_with("Channel 00/02 : 0 1 2\n"));
}

TEST_CASE("variables bound the channels", "[topology]") {
  ConnectOptions options;
  options.variables.max_channels = 1;
  CHECK(connect_nodes({node_of_one(0), node_of_one(1)}, options).rings.size() == 1);
  options.variables = {};
  options.variables.min_channels = 7;
  CHECK(connect_nodes({node_of_one(0), node_of_one(1)}, options).rings.size() == 7);
  // Four of each searched one, over 45 GB/s and less than 16.
  NodeGraphs fast[] = {node_of_one(0), node_of_one(1)};
  for (NodeGraphs& node : fast) node.graphs.ring.node_gb_per_s = 48;
  CHECK(connect_nodes({fast[0], fast[1]}).rings.size() == 4);
  CHECK_THROWS_AS(connect_nodes({node_of_one(0), node_of_one(2)}), Error);
}

TEST_CASE("environment variables become values, and wrong ones are refused", "[topology]") {
  const ReadVariables read = parse_variables(
      "# of a job\nexport NCCL_CROSS_NIC=0\nNCCL_P2P_LEVEL=\"PXB\"\nNCCL_NETDEVS_POLICY=MAX:2\nPATH=/bin\n"
      "NCCL_IB_HCA=mlx5\nNCCL_NET_OVERHEAD=1500\nNCCL_FANCY=1\nNCCL_NVLS_ENABLE=0\n",
      "env");
  CHECK(read.values.cross_nic == 0);
  CHECK(read.values.p2p_level == PathClass::kPxb);
  CHECK(read.values.net_policy == NetPolicy::kMax);
  CHECK(read.values.net_policy_most == 2);
  CHECK(read.values.net_overhead_us == 1.5);
  CHECK(read.values.nvls == 0);
  REQUIRE(read.notes.size() == 1);
  CHECK(read.notes[0].line == 8);
  CHECK(read_variables({{"NCCL_P2P_LEVEL", "3"}}).values.p2p_level == PathClass::kPhb);
  CHECK(read_variables({{"NCCL_P2P_DISABLE", "1"}, {"NCCL_P2P_LEVEL", "SYS"}}).values.p2p_level ==
        PathClass::kLoc);
  CHECK_THROWS_AS(parse_variables("NCCL_CROSS_NIC=yes\n", "env"), Error);
  CHECK_THROWS_AS(parse_variables("NCCL_CROSS_NIC\n", "env"), Error);
  CHECK_THROWS_AS(read_variables({{"NCCL_P2P_LEVEL", "FAR"}}), Error);
  CHECK_THROWS_AS(read_variables({{"NCCL_NETDEVS_POLICY", "MAX:0"}}), Error);
  CHECK_THROWS_AS(read_variables({{"NCCL_MIN_NCHANNELS", "99"}}), Error);
}

// Placements as tables, JSON and what launchers take.

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "report/placement_launch.hpp"
#include "report/placement_report.hpp"

using namespace orrery;
using Catch::Matchers::Contains;

namespace {

// Two nodes of two GPUs; each GPU under a switch and CPU of its own, with a NIC.
Cluster two_nodes() {
  NodeShape shape;
  shape.gpus = shape.nics = 2;
  Cluster cluster;
  cluster.node = make_node(shape, catalogue_gpu("a100-pcie-80gb").value());
  cluster.nodes = 2;
  return cluster;
}

// Ranks 0 and 2 on node 0, 1 and 3 on node 1; there rank 3 is on GPU 0.
const RankPlacement kPlacement{{0, 3, 1, 2}, ""};

}  // namespace

TEST_CASE("a rank file names each rank's host and slot", "[report]") {
  CHECK(rank_file(kPlacement, two_nodes()) ==
        "rank 0=node0 slot=0\nrank 1=node1 slot=0\nrank 2=node0 slot=1\nrank 3=node1 slot=1\n");
  LaunchNames names;
  names.hosts = {"a", "b"};
  CHECK_THAT(rank_file(kPlacement, two_nodes(), names), Contains("rank 3=b slot=1"));
  names.hosts = {"a"};
  CHECK_THROWS_AS(rank_file(kPlacement, two_nodes(), names), Error);
}

TEST_CASE("the script binds each process to its GPU, NIC and CPU", "[report]") {
  const std::string text = launch_script(kPlacement, two_nodes(), HostBinding::kNearest);
  CHECK_THAT(text, Contains("0:0 | node0:0) rank=0 gpu=0 nic=mlx5_0 numa=0 ;;"));
  CHECK_THAT(text, Contains("0:1 | node0:1) rank=2 gpu=1 nic=mlx5_1 numa=1 ;;"));
  CHECK_THAT(text, Contains("1:0 | node1:0) rank=1 gpu=1 nic=mlx5_1 numa=1 ;;"));
  CHECK_THAT(text, Contains("1:1 | node1:1) rank=3 gpu=0 nic=mlx5_0 numa=0 ;;"));
  CHECK_THAT(text, Contains("WORLD_SIZE=4 RANK=$rank"));
  CHECK_THAT(text, Contains("numactl --cpunodebind=$numa --membind=$numa \"$@\""));
  CHECK_THAT(launch_script(kPlacement, two_nodes(), HostBinding::kRoundRobin), !Contains("numactl"));
  Cluster remote = two_nodes();
  remote.node.nic_of_gpu = remote.node.cpu_of_gpu = {1, 0};
  CHECK_THAT(launch_script(kPlacement, remote, HostBinding::kRemote),
             Contains("rank=0 gpu=0 nic=mlx5_1 numa=1"));
}

TEST_CASE("the table and the JSON have every policy, and why one was refused", "[report]") {
  Scenario scenario;
  scenario.name = "two";
  scenario.cluster = two_nodes();
  PlacementRow made, refused;
  made.step_time_s = 0.25;
  made.placement = kPlacement;
  made.cost.crossing.bytes = 200;
  made.cost.crossing.numa = 50;
  made.cost.axes.push_back({"tp", 2, 2, 1, 2, 200, 5, 5, 1});
  refused.policy = PlacementPolicy::kRoundRobinNodes;
  refused.refused = "tp group 0 is too far apart";
  const std::string table = to_table({refused, made}, scenario);
  CHECK_THAT(table, Contains("round-robin-nodes") && Contains("refused: tp group 0 is too far apart"));
  CHECK_THAT(table, Contains("25.0 %") && Contains("5.0/5 +1") && Contains("groups under linear"));
  const std::string json = to_json({refused, made}, scenario);
  CHECK_THAT(json, Contains("\"cross_numa_share\": 0.25") &&
                       Contains("\"refused\": \"tp group 0 is too far apart\""));
  CHECK_THAT(json, Contains("\"max_pcie_hops\": null"));
}

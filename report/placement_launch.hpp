#pragma once
// A placement as launchers take it, so that it can be used on the machine itself.

#include <string>
#include <vector>

#include "planner/placement.hpp"
#include "topology/cluster.hpp"

namespace orrery {

struct LaunchNames {
  std::vector<std::string> hosts;    // By node; empty: "node0", "node1", …
  std::string nic_prefix = "mlx5_";  // Of the names in /sys/class/infiniband; the NIC's number follows.
};

// Open MPI's rank file (mpirun --rankfile): the host of each rank, and a slot of its own there.
// THROWS Error(kUsage) when there are fewer hosts than nodes.
std::string rank_file(const RankPlacement& placement, const Cluster& cluster, const LaunchNames& names = {});

// A shell script to be put before the training command, started once for each GPU of each node (srun
// --ntasks-per-node, mpirun). The process with local rank i drives the node's i-th lowest rank: the script
// sets RANK, LOCAL_RANK, CUDA_VISIBLE_DEVICES, NCCL_IB_HCA and runs the command under numactl. `numa`:
// kRoundRobin leaves numactl out, since it stands for processes that nobody binds.
std::string launch_script(const RankPlacement& placement, const Cluster& cluster, HostBinding numa,
                          const LaunchNames& names = {});

}  // namespace orrery

#include "report/placement_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "planner/placement_machine.hpp"

namespace orrery {
namespace {

// By node: its ranks, ascending.
std::vector<std::vector<std::int32_t>> ranks_of_nodes(const RankPlacement& placement,
                                                      const Cluster& cluster) {
  std::vector<std::vector<std::int32_t>> ranks(static_cast<std::size_t>(cluster.nodes));
  for (std::size_t rank = 0; rank < placement.device_of.size(); ++rank) {
    const std::int32_t node = placement.device_of[rank] / cluster.node.gpus;
    ranks[static_cast<std::size_t>(node)].push_back(static_cast<std::int32_t>(rank));
  }
  return ranks;
}

std::string host(const LaunchNames& names, std::size_t node, std::int32_t nodes) {
  if (names.hosts.empty()) return fmt::format("node{}", node);
  if (node >= names.hosts.size())
    fail(ErrorKind::kUsage, "{} hosts are named, the cluster has {} nodes; name them all", names.hosts.size(),
         nodes);
  return names.hosts[node];
}

constexpr const char* kHead =
    "#!/bin/sh\n"
    "# Put before the training command, once per GPU: srun --ntasks-per-node={0} THIS-FILE python train.py "
    "…\n"
    "# The node is known by number or name; launchers other than Slurm and Open MPI set NODE and SLOT.\n"
    "node=${{NODE:-${{SLURM_NODEID:-$(hostname -s)}}}}\n"
    "slot=${{SLOT:-${{SLURM_LOCALID:-${{OMPI_COMM_WORLD_LOCAL_RANK:-0}}}}}}\n"
    "case $node:$slot in\n";

constexpr const char* kTail =
    "  *) echo \"no rank for node $node, process $slot\" >&2; exit 2 ;;\n"
    "esac\n"
    "export WORLD_SIZE={} RANK=$rank LOCAL_RANK=0 CUDA_VISIBLE_DEVICES=$gpu\n"
    "{}"
    "{}\n";

}  // namespace

std::string rank_file(const RankPlacement& placement, const Cluster& cluster, const LaunchNames& names) {
  const auto ranks = ranks_of_nodes(placement, cluster);
  std::vector<std::string> lines(placement.device_of.size());
  for (std::size_t node = 0; node < ranks.size(); ++node) {
    for (std::size_t slot = 0; slot < ranks[node].size(); ++slot) {
      lines[static_cast<std::size_t>(ranks[node][slot])] =
          fmt::format("rank {}={} slot={}\n", ranks[node][slot], host(names, node, cluster.nodes), slot);
    }
  }
  std::string text;
  for (const std::string& one : lines) text += one;
  return text;
}

std::string launch_script(const RankPlacement& placement, const Cluster& cluster, HostBinding numa,
                          const LaunchNames& names) {
  const NodeRoutes routes = find_routes(cluster.node);
  const std::vector<std::int32_t> cpus =
      cluster.node.cpu_of_gpu.empty() ? nearest_cpus(cluster.node) : cluster.node.cpu_of_gpu;
  const bool bound =
      numa != HostBinding::kRoundRobin && std::ranges::none_of(cpus, [](auto cpu) { return cpu < 0; });
  const bool nics = cluster.node.nics > 0;
  const auto ranks = ranks_of_nodes(placement, cluster);
  std::string text = fmt::format(kHead, cluster.node.gpus);
  for (std::size_t node = 0; node < ranks.size(); ++node) {
    const std::string name = host(names, node, cluster.nodes);
    for (std::size_t slot = 0; slot < ranks[node].size(); ++slot) {
      const std::int32_t rank = ranks[node][slot];
      const std::int32_t gpu = placement.device_of[static_cast<std::size_t>(rank)] % cluster.node.gpus;
      text += fmt::format("  {0}:{2} | {1}:{2}) rank={3} gpu={4}", node, name, slot, rank, gpu);
      if (nics)
        text += fmt::format(" nic={}{}", names.nic_prefix, routes.nic_of[static_cast<std::size_t>(gpu)]);
      if (bound) text += fmt::format(" numa={}", cpus[static_cast<std::size_t>(gpu)]);
      text += " ;;\n";
    }
  }
  return text +
         fmt::format(kTail, placement.device_of.size(), nics ? "export NCCL_IB_HCA==$nic\n" : "",
                     bound ? "exec numactl --cpunodebind=$numa --membind=$numa \"$@\"" : "exec \"$@\"");
}

}  // namespace orrery

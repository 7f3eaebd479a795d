#include "planner/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

#include "base/error.hpp"
#include "planner/lower.hpp"
#include "planner/placement_search.hpp"

namespace orrery {
namespace {

// Every pair of devices is looked at, in memory and in each sweep of exchanges.
constexpr std::int32_t kMaxGraphGpus = 1024;
constexpr std::int32_t kMaxExactGpus = 8;
constexpr std::int32_t kMetisSeeds = 4;

std::vector<std::int32_t> linear(std::int32_t devices) {
  std::vector<std::int32_t> device_of(static_cast<std::size_t>(devices));
  std::iota(device_of.begin(), device_of.end(), 0);
  return device_of;
}

std::vector<std::int32_t> round_robin_nodes(const Cluster& cluster) {
  std::vector<std::int32_t> device_of;
  for (std::int32_t gpu = 0; gpu < cluster.node.gpus; ++gpu) {
    for (std::int32_t node = 0; node < cluster.nodes; ++node)
      device_of.push_back(node * cluster.node.gpus + gpu);
  }
  return device_of;
}

std::vector<std::int32_t> round_robin_sockets(const Cluster& cluster) {
  const std::vector<std::int32_t> cpu_of = nearest_cpus(cluster.node);
  std::vector<std::vector<std::int32_t>> of_cpu(
      static_cast<std::size_t>(*std::ranges::max_element(cpu_of) + 1) + 1);
  for (std::int32_t gpu = 0; gpu < cluster.node.gpus; ++gpu)
    of_cpu[static_cast<std::size_t>(cpu_of[static_cast<std::size_t>(gpu)] + 1)].push_back(gpu);
  std::vector<std::int32_t> order;
  for (std::size_t turn = 0; std::ssize(order) < cluster.node.gpus; ++turn) {
    for (const auto& gpus : of_cpu) {
      if (turn < gpus.size()) order.push_back(gpus[turn]);
    }
  }
  std::vector<std::int32_t> device_of;
  for (std::int32_t node = 0; node < cluster.nodes; ++node) {
    for (const std::int32_t gpu : order) device_of.push_back(node * cluster.node.gpus + gpu);
  }
  return device_of;
}

std::vector<std::int32_t> listed(const PlacementRequest& request, std::int32_t devices) {
  if (std::ssize(request.ranks) != devices)
    fail(ErrorKind::kInput, "plan.placement.ranks: has {} entries; give the GPU of each of the {} ranks",
         request.ranks.size(), devices);
  std::vector<std::int32_t> rank_on(request.ranks.size(), -1);
  for (std::size_t rank = 0; rank < request.ranks.size(); ++rank) {
    const std::int32_t device = request.ranks[rank];
    if (device < 0 || device >= devices)
      fail(ErrorKind::kInput, "plan.placement.ranks: rank {} is on GPU {}; GPUs are 0 to {}", rank, device,
           devices - 1);
    std::int32_t& there = rank_on[static_cast<std::size_t>(device)];
    if (there >= 0)
      fail(ErrorKind::kInput, "plan.placement.ranks: ranks {} and {} are both on GPU {}; give each its own",
           there, rank, device);
    there = static_cast<std::int32_t>(rank);
  }
  return request.ranks;
}

void check_size(PlacementPolicy policy, std::int32_t devices, std::int32_t most) {
  if (devices > most)
    fail(ErrorKind::kInfeasible, "plan.placement.policy: {} is for up to {} GPUs, the cluster has {}; use {}",
         to_string(policy), most, devices, devices > kMaxGraphGpus ? "linear, or a list" : "graph");
}

RankPlacement exact(const RankTraffic& traffic, const PlacementMachine& machine, const HopLimit& limit) {
  check_size(PlacementPolicy::kExact, machine.devices(), kMaxExactGpus);
  PlacementSearch search(traffic, machine, limit);
  if (!search.try_all()) {
    (void)pack_groups(limit, machine);  // Says which group has no room.
    fail(ErrorKind::kInfeasible, "plan.placement.max_pcie_hops: no placement keeps to {} hops in {} groups",
         limit.hops, limit.axis);
  }
  return {search.device_of(), "all permutations were tried"};
}

// From several starts, so that it is never worse than the simple policies: METIS' best cut, and each of those
// that keeps to the limit.
RankPlacement by_graph(const RankTraffic& traffic, const PlacementMachine& machine, const HopLimit& limit) {
  check_size(PlacementPolicy::kGraph, machine.devices(), kMaxGraphGpus);
  PlacementSearch search(traffic, machine, limit);
  const auto kept = [&](const std::vector<std::int32_t>& device_of) {
    return hop_fault(limit, machine, device_of).empty();
  };
  struct Start {
    std::string name;
    std::vector<std::int32_t> device_of;
  };
  std::vector<Start> starts;
  double least = 0;
  for (std::int32_t seed = 0; seed < kMetisSeeds; ++seed) {
    std::vector<std::int32_t> cut = cut_along_boxes(traffic, machine, limit, seed);
    if (!kept(cut)) continue;
    search.start_at(cut);
    if (!starts.empty() && search.cost() >= least) continue;
    least = search.cost();
    starts = {{"METIS", std::move(cut)}};
  }
  const Cluster& cluster = machine.cluster();
  // Of equally good ones the first: where nothing is gained, ranks stay in order.
  starts.insert(starts.begin(), {"linear", linear(machine.devices())});
  if (!limit.groups.empty()) starts.push_back({"groups in order", pack_groups(limit, machine)});
  starts.push_back({"round-robin-nodes", round_robin_nodes(cluster)});
  starts.push_back({"round-robin-sockets", round_robin_sockets(cluster)});

  RankPlacement best;
  double best_cost = 0;
  std::string tried;
  for (Start& start : starts) {
    if (!kept(start.device_of)) continue;
    search.start_at(std::move(start.device_of));
    const double first = search.cost();
    search.refine();
    tried +=
        fmt::format("{}{} {:.2f} to {:.2f}", tried.empty() ? "" : ", ", start.name, first, search.cost());
    if (!best.device_of.empty() && search.cost() >= best_cost * (1 - 1e-9)) continue;
    best_cost = search.cost();
    best.device_of = search.device_of();
    best.made_by = start.name;
  }
  best.made_by += fmt::format("; link-seconds of each start, and after exchanges: {}", tried);
  return best;
}

// The i-th of a list that the request gives, or by the rule.
template <class Rule>
std::vector<std::int32_t> binding(HostBinding kind, const std::vector<std::int32_t>& list, std::int32_t gpus,
                                  std::int32_t count, const char* key, Rule&& rule) {
  if (kind == HostBinding::kNearest) return {};
  if (count == 0)
    fail(ErrorKind::kInput, "plan.placement.{}: the node has none to bind to; leave it out", key);
  std::vector<std::int32_t> bound = list;
  if (kind != HostBinding::kList) {
    bound.clear();
    for (std::int32_t gpu = 0; gpu < gpus; ++gpu) bound.push_back(rule(gpu));
  }
  if (std::ssize(bound) != gpus)
    fail(ErrorKind::kInput, "plan.placement.{}: has {} entries; give one for each of a node's {} GPUs", key,
         bound.size(), gpus);
  for (const std::int32_t number : bound) {
    if (number < 0 || number >= count)
      fail(ErrorKind::kInput, "plan.placement.{}: there is no {}; a node's are 0 to {}", key, number,
           count - 1);
  }
  return bound;
}

}  // namespace

std::string_view to_string(PlacementPolicy policy) {
  switch (policy) {
    case PlacementPolicy::kLinear: return "linear";
    case PlacementPolicy::kRoundRobinNodes: return "round-robin-nodes";
    case PlacementPolicy::kRoundRobinSockets: return "round-robin-sockets";
    case PlacementPolicy::kList: return "list";
    case PlacementPolicy::kGraph: return "graph";
    case PlacementPolicy::kExact: return "exact";
  }
  return "";
}

std::string_view to_string(HostBinding binding) {
  switch (binding) {
    case HostBinding::kNearest: return "nearest";
    case HostBinding::kRoundRobin: return "round-robin";
    case HostBinding::kRemote: return "remote";
    case HostBinding::kList: return "list";
  }
  return "";
}

std::vector<PlacementPolicy> all_placement_policies() {
  using enum PlacementPolicy;
  return {kLinear, kRoundRobinNodes, kRoundRobinSockets, kList, kGraph, kExact};
}

RankPlacement make_placement(const RankTraffic& traffic, const Cluster& cluster,
                             const PlacementRequest& request) {
  assert(traffic.world_size == cluster.gpu_count());
  const PlacementMachine machine(cluster);
  const HopLimit limit = hop_limit(traffic, request);
  RankPlacement placement;
  switch (request.policy) {
    case PlacementPolicy::kLinear: placement.device_of = linear(machine.devices()); break;
    case PlacementPolicy::kRoundRobinNodes: placement.device_of = round_robin_nodes(cluster); break;
    case PlacementPolicy::kRoundRobinSockets: placement.device_of = round_robin_sockets(cluster); break;
    case PlacementPolicy::kList: placement.device_of = listed(request, machine.devices()); break;
    case PlacementPolicy::kGraph: return by_graph(traffic, machine, limit);
    case PlacementPolicy::kExact: return exact(traffic, machine, limit);
  }
  const std::string fault = hop_fault(limit, machine, placement.device_of);
  if (!fault.empty())
    fail(ErrorKind::kInfeasible, "plan.placement.max_pcie_hops: {}; use policy: graph, or allow more", fault);
  return placement;
}

void bind_hosts(const PlacementRequest& request, NodeType& node) {
  const auto cpus =
      static_cast<std::int32_t>(std::ranges::count(node.devices, DeviceKind::kCpu, &NodeDevice::kind));
  NodeType unbound = node;
  unbound.nic_of_gpu.clear();
  const NodeRoutes routes = find_routes(unbound);
  const std::vector<std::int32_t> cpu_of = nearest_cpus(node);
  node.nic_of_gpu = binding(request.nic, request.nics, node.gpus, node.nics, "nic", [&](std::int32_t gpu) {
    if (request.nic == HostBinding::kRoundRobin) return gpu % node.nics;
    return (routes.nic_of[static_cast<std::size_t>(gpu)] + node.nics / 2) % node.nics;
  });
  node.cpu_of_gpu = binding(request.numa, request.cpus, node.gpus, cpus, "numa", [&](std::int32_t gpu) {
    if (request.numa == HostBinding::kRoundRobin) return gpu % cpus;
    return (cpu_of[static_cast<std::size_t>(gpu)] + 1) % cpus;
  });
  find_routes(node);  // Says what nothing joins.
}

Plan place_ranks(Plan plan, const Graph& graph, const Cluster& cluster, const PlacementRequest& request) {
  if (request.policy == PlacementPolicy::kLinear && request.max_pcie_hops == kNoHopLimit) return plan;
  plan.device_of = make_placement(rank_traffic(lower(graph, plan)), cluster, request).device_of;
  return plan;
}

}  // namespace orrery

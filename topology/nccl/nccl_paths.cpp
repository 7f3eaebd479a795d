#include "topology/nccl/nccl_paths.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace orrery::nccl {
namespace {

constexpr float kLocalGbPerS = 5000;

SystemNode& node_at(System& system, std::int32_t node) {
  return system.nodes[static_cast<std::size_t>(node)];
}
const SystemNode& node_at(const System& system, std::int32_t node) {
  return system.nodes[static_cast<std::size_t>(node)];
}
const SystemLink& link_at(const System& system, std::int32_t link) {
  return system.links[static_cast<std::size_t>(link)];
}
SystemPath& path_at(System& system, std::int32_t from, std::int32_t to) {
  return system.paths_to[static_cast<std::size_t>(to)][static_cast<std::size_t>(from)];
}
std::int32_t gpu_node(const System& system, std::int32_t gpu) {
  return system.all(NodeKind::kGpu)[static_cast<std::size_t>(gpu)];
}
std::int32_t port_node(const System& system, std::int32_t port) {
  return system.all(NodeKind::kNet)[static_cast<std::size_t>(port)];
}

PathClass class_of(LinkClass kind) {
  switch (kind) {
    case LinkClass::kLoc:
    case LinkClass::kNet: return PathClass::kLoc;  // The cable says nothing about how near a port is.
    case LinkClass::kNvl: return PathClass::kNvl;
    case LinkClass::kC2c: return PathClass::kC2c;
    case LinkClass::kPci: return PathClass::kPix;
    case LinkClass::kSys: return PathClass::kSys;
  }
  return PathClass::kDis;
}

// ---- Breadth first towards one node.

class PathsTo {
 public:
  PathsTo(System& system, std::int32_t base) : system_(system), base_(base) {
    auto& paths = system.paths_to[static_cast<std::size_t>(base)];
    paths.assign(system.nodes.size(), {});
    paths[static_cast<std::size_t>(base)] = {PathClass::kLoc, kLocalGbPerS, {}};
  }

  void run() {
    for (std::vector<std::int32_t> layer{base_}; !layer.empty();) {
      std::vector<std::int32_t> next;
      for (const std::int32_t node : layer)
        for (const std::int32_t l : node_at(system_, node).links)
          if (extend(node, link_at(system_, l)) &&
              std::ranges::find(next, link_at(system_, l).to) == next.end())
            next.push_back(link_at(system_, l).to);
      layer = std::move(next);
    }
  }

 private:
  // GPUs don't forward, but for one hop between NVLinks.
  bool forwards(std::int32_t node, const SystemLink& link, const SystemPath& path) const {
    if (node == base_ || node_at(system_, node).kind != NodeKind::kGpu) return true;
    return system_.variables.nvb && link.kind == LinkClass::kNvl &&
           node_at(system_, link.to).kind == NodeKind::kGpu && path.links.size() <= 1;
  }

  PathClass extended_class(std::int32_t node, const SystemLink& link, const SystemPath& path) const {
    const NodeKind here = node_at(system_, node).kind, there = node_at(system_, link.to).kind;
    PathClass type = class_of(link.kind);
    if (here == NodeKind::kPci && there == NodeKind::kPci) type = PathClass::kPxb;
    if (link.kind == LinkClass::kPci && (here == NodeKind::kCpu || there == NodeKind::kCpu))
      type = PathClass::kPhb;
    if (here == NodeKind::kGpu && path.type == PathClass::kNvl && type == PathClass::kNvl)
      type = PathClass::kNvb;
    return std::max(path.type, type);
  }

  bool extend(std::int32_t node, const SystemLink& link) {
    const SystemPath& path = system_.path(node, base_);
    if (!forwards(node, link, path)) return false;
    SystemPath& known = path_at(system_, link.to, base_);
    const float rate = std::min(path.gb_per_s, link.gb_per_s);
    const PathClass type = extended_class(node, link, path);
    // Before 2.30 a shorter way of any class was kept, and an unusable one of no bandwidth never taken.
    const bool better =
        system_.nccl_minor >= 30
            ? type < known.type || (type == known.type && rate > known.gb_per_s) ||
                  (type == known.type && rate == known.gb_per_s && known.links.size() > path.links.size() + 1)
            : (known.gb_per_s == 0 || known.links.size() > path.links.size()) && known.gb_per_s < rate;
    if (!better) return false;
    std::vector<std::int32_t> links{way_back(link)};
    links.insert(links.end(), path.links.begin(), path.links.end());
    known = {type, rate, std::move(links)};
    return true;
  }

  std::int32_t way_back(const SystemLink& link) const {
    for (const std::int32_t l : node_at(system_, link.to).links)
      if (link_at(system_, l).to == link.from && link_at(system_, l).kind == link.kind) return l;
    fail(ErrorKind::kInput,
         "GPU {:x} lists NVLinks to {:x}, which lists none back: NCCL would stop with an internal error; "
         "complete the topology file",
         node_at(system_, link.from).id, node_at(system_, link.to).id);
  }

  System& system_;
  std::int32_t base_;
};

// ---- What NCCL does with them.

// C2C to the own CPU and from there over PCIe.
PathClass merged(PathClass a, PathClass b) {
  const PathClass worse = std::max(a, b), better = std::min(a, b);
  return worse == PathClass::kPhb && better == PathClass::kC2c ? PathClass::kP2c : worse;
}

void detour(System& system, std::int32_t from, std::int32_t over, std::int32_t to) {
  const SystemPath& first = system.path(from, over);
  const SystemPath& second = system.path(over, to);
  SystemPath path{merged(first.type, second.type), std::min(first.gb_per_s, second.gb_per_s), first.links};
  path.links.insert(path.links.end(), second.links.begin(), second.links.end());
  if (node_at(system, over).kind == NodeKind::kGpu) path.type = PathClass::kPxn;
  path_at(system, from, to) = std::move(path);
}

// −1: none is near.
std::int32_t own_cpu(const System& system, std::int32_t node) {
  std::int32_t best = -1;
  for (const std::int32_t index : nearest(system, node, NodeKind::kCpu)) {
    const std::int32_t cpu = system.all(NodeKind::kCpu)[static_cast<std::size_t>(index)];
    if (best < 0 || system.path(node, cpu).links.size() < system.path(node, best).links.size()) best = cpu;
  }
  return best;
}

bool has_p2p(const System& system, std::int32_t from, std::int32_t to) {
  const bool same_host = node_at(system, from).host == node_at(system, to).host;
  if (!same_host && !system.variables.mnnvl) return false;
  PathClass level = PathClass::kPxb;
  const SystemNode* const cpu = system.first_cpu();
  if (cpu != nullptr && cpu->architecture == CpuArchitecture::kX86 && cpu->vendor == CpuVendor::kAmd &&
      system.gpu_count() <= 2)
    level = PathClass::kSys;
  return system.path(from, to).type <= system.variables.p2p_level.value_or(level);
}

void bend_gpu_paths(System& system) {
  for (const std::int32_t to : system.all(NodeKind::kGpu))
    for (const std::int32_t from : system.all(NodeKind::kGpu)) {
      if (has_p2p(system, from, to)) continue;
      if (const std::int32_t cpu = own_cpu(system, to); cpu >= 0) detour(system, from, cpu, to);
      const bool same_host = node_at(system, from).host == node_at(system, to).host;
      if (from != to && !(same_host && system.variables.shm))
        path_at(system, from, to).type = PathClass::kNet;
    }
}

void promote_c2c(System& system) {
  for (const std::int32_t gpu : system.all(NodeKind::kGpu)) {
    const std::int32_t cpu = own_cpu(system, gpu);
    if (cpu < 0) continue;
    for (const std::int32_t index : nearest(system, gpu, NodeKind::kNet)) {
      const std::int32_t port = port_node(system, index);
      if (merged(system.path(gpu, cpu).type, system.path(port, cpu).type) != PathClass::kP2c) continue;
      path_at(system, gpu, port).type = std::min(PathClass::kP2c, system.path(gpu, port).type);
      path_at(system, port, gpu).type = std::min(PathClass::kP2c, system.path(port, gpu).type);
    }
  }
}

// The first GPU near a port that has it as its own, by channel.
std::int32_t gpu_of_port(const System& system, std::int32_t port) {
  constexpr std::int32_t kMostChannels = 64;
  const std::vector<std::int32_t> near = nearest(system, port_node(system, port), NodeKind::kGpu);
  for (std::int32_t channel = 0; channel < kMostChannels; ++channel)
    for (const std::int32_t gpu : near)
      if (local_port(system, gpu, channel) == port) return gpu;
  return -1;
}

// Through a GPU beside the port. Only to send: what arrives takes the receiver's own port.
void send_by_neighbour(System& system, std::int32_t gpu, std::int32_t port) {
  const std::int32_t neighbour = gpu_of_port(system, port);
  if (!system.variables.pxn || neighbour == gpu || neighbour < 0) return;
  const std::int32_t from = gpu_node(system, gpu), over = gpu_node(system, neighbour),
                     to = port_node(system, port);
  const PathClass most = system.variables.pxn_c2c ? PathClass::kP2c : PathClass::kPxb;
  const SystemPath &its = system.path(over, to), &own = system.path(from, to);
  if (its.type <= most && gpu_direct(system, neighbour, port, true) != GpuDirect::kOff &&
      system.path(over, from).type <= PathClass::kNvl &&
      node_at(system, over).host == node_at(system, from).host &&
      (its.gb_per_s > own.gb_per_s || own.type > PathClass::kPxn))
    detour(system, from, over, to);
}

void bend_port_paths(System& system) {
  const auto ports = static_cast<std::int32_t>(system.all(NodeKind::kNet).size());
  for (std::int32_t port = 0; port < ports; ++port)
    for (std::int32_t gpu = 0; gpu < system.gpu_count(); ++gpu) {
      send_by_neighbour(system, gpu, port);
      const std::int32_t from = gpu_node(system, gpu), to = port_node(system, port);
      if (system.path(from, to).type >= PathClass::kPhb ||
          gpu_direct(system, gpu, port, false) != GpuDirect::kOff)
        continue;
      if (const std::int32_t cpu = own_cpu(system, from); cpu >= 0) {
        detour(system, to, cpu, from);
        detour(system, from, cpu, to);
      }
    }
  for (std::int32_t port = 0; port < ports; ++port)
    node_at(system, port_node(system, port)).local_gpu = gpu_of_port(system, port);
}

// Only GPUs that all reach each other without the network form a node.
void drop_unreachable(System& system) {
  auto& gpus = system.of_kind[static_cast<std::size_t>(NodeKind::kGpu)];
  std::vector<std::size_t> domain(gpus.size());
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    domain[g] = g;
    for (std::size_t p = 0; p < g; ++p)
      if (system.path(gpus[g], gpus[p]).type < PathClass::kNet) domain[g] = std::min(domain[g], domain[p]);
  }
  if (std::ranges::all_of(domain, [](std::size_t d) { return d == 0; })) return;
  std::vector<std::int32_t> kept;
  for (std::size_t g = 0; g < gpus.size(); ++g)
    if (domain[g] == 0) kept.push_back(gpus[g]);
  gpus = std::move(kept);
  system.inter = true;  // The others are ranks elsewhere now.
}

std::uint32_t mirrored(std::uint32_t value, std::uint32_t power_of_two) {
  std::uint32_t result = 0;
  for (std::uint32_t bit = 1, back = power_of_two >> 1; bit < power_of_two; bit <<= 1, back >>= 1)
    if ((value & bit) != 0) result |= back;
  return result;
}

}  // namespace

void find_paths(System& system) {
  system.paths_to.assign(system.nodes.size(), {});
  for (const NodeKind kind : {NodeKind::kCpu, NodeKind::kGpu, NodeKind::kNet, NodeKind::kNvs})
    for (const std::int32_t base : system.all(kind)) PathsTo(system, base).run();
  bend_gpu_paths(system);
  promote_c2c(system);
  bend_port_paths(system);
  drop_unreachable(system);
}

PairTransport transport(const System& system, std::int32_t from_gpu, std::int32_t to_gpu) {
  const std::int32_t from = gpu_node(system, from_gpu), to = gpu_node(system, to_gpu);
  const SystemPath& path = system.path(from, to);
  const auto best_port = [&](std::int32_t gpu) {
    float best = 0;
    for (const std::int32_t port : system.all(NodeKind::kNet))
      if (system.path(gpu, port).type <= PathClass::kPxb)
        best = std::max(best, system.path(gpu, port).gb_per_s);
    return best;
  };
  PairTransport result;
  if (path.type >= PathClass::kNet || (system.variables.net_inside_node && best_port(from) > path.gb_per_s &&
                                       best_port(to) > path.gb_per_s)) {
    result.transport = Transport::kNet;
    return result;
  }
  if (!has_p2p(system, from, to)) {
    result.transport = Transport::kShm;
    return result;
  }
  const SystemNode &a = node_at(system, from), &b = node_at(system, to);
  result.read = path.type == PathClass::kNvl && a.compute_capability == 80 && b.compute_capability == 80;
  if (path.links.size() == 2) {
    const auto& gpus = system.all(NodeKind::kGpu);
    const auto middle = std::ranges::find(gpus, link_at(system, path.links.front()).to);
    if (middle != gpus.end()) result.intermediate = static_cast<std::int32_t>(middle - gpus.begin());
  }
  return result;
}

std::int32_t sending_gpu(const System& system, std::int32_t gpu, std::int32_t port) {
  const SystemPath& path = system.path(gpu_node(system, gpu), port_node(system, port));
  if (path.type != PathClass::kPxn) return gpu;
  const auto& gpus = system.all(NodeKind::kGpu);
  for (const std::int32_t l : path.links)
    if (const auto next = std::ranges::find(gpus, link_at(system, l).to); next != gpus.end())
      return static_cast<std::int32_t>(next - gpus.begin());
  return gpu;
}

GpuDirect gpu_direct(const System& system, std::int32_t gpu, std::int32_t port, bool send) {
  const std::int32_t from = gpu_node(system, gpu), to = port_node(system, port);
  const Variables& variables = system.variables;
  if (!node_at(system, from).gpu_direct || !node_at(system, to).gpu_direct) return GpuDirect::kOff;
  if (send) {
    if (variables.gdr_read == false) return GpuDirect::kOff;
    // Before Ampere reading GPU memory over PCIe gets slow beside other traffic: only where NVLink takes
    // that.
    const bool nvlink =
        system.gpu_count() == 1 || std::ranges::any_of(system.all(NodeKind::kGpu), [&](std::int32_t other) {
          return other != from && system.path(from, other).type == PathClass::kNvl;
        });
    if (!variables.gdr_read && node_at(system, from).compute_capability < 80 && !nvlink)
      return GpuDirect::kOff;
  }
  const PathClass level = variables.gdr_level.value_or(variables.gdr_c2c ? PathClass::kP2c : PathClass::kPxb);
  const std::int32_t by = gpu_node(system, sending_gpu(system, gpu, port));
  const PathClass distance = system.path(by, to).type;
  if (distance > level) return GpuDirect::kOff;
  const std::int32_t cpu = own_cpu(system, by);
  const bool c2c = cpu >= 0 && system.path(by, cpu).type == PathClass::kC2c;
  return c2c && distance != PathClass::kP2c ? GpuDirect::kOverPcie : GpuDirect::kOn;
}

std::vector<std::int32_t> nearest(const System& system, std::int32_t node, NodeKind kind) {
  std::vector<std::int32_t> found;
  float most = 0;
  PathClass best = PathClass::kDis;
  const auto& all = system.all(kind);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const SystemPath& path = system.path(node, all[i]);
    if (path.gb_per_s > most || (path.gb_per_s == most && path.type < best)) {
      most = path.gb_per_s;
      best = path.type;
      found.clear();
    }
    if (path.gb_per_s == most && path.type == best) found.push_back(static_cast<std::int32_t>(i));
  }
  return found;
}

std::int32_t local_port(const System& system, std::int32_t gpu, std::int32_t channel) {
  const std::vector<std::int32_t> ports = nearest(system, gpu_node(system, gpu), NodeKind::kNet);
  const auto count = static_cast<std::uint32_t>(ports.size());
  const auto sharers =
      static_cast<std::uint32_t>(nearest(system, port_node(system, ports.front()), NodeKind::kGpu).size());
  std::uint32_t each = (count + sharers - 1) / sharers;
  if (system.variables.net_policy == NetPolicy::kAll) each = count;
  if (system.variables.net_policy == NetPolicy::kMax)
    each = std::min(count, static_cast<std::uint32_t>(system.variables.net_policy_most));
  std::uint32_t port = static_cast<std::uint32_t>(system.gpu(gpu).device) % sharers;
  if (std::has_single_bit(count)) port = mirrored(port, count);
  return ports[(port + static_cast<std::uint32_t>(channel) % each) % count];
}

std::pair<PathClass, PathClass> path_range(const System& system, NodeKind kind) {
  PathClass best = PathClass::kSys, worst = PathClass::kLoc;
  for (const std::int32_t gpu : system.all(NodeKind::kGpu))
    for (const std::int32_t to : system.all(kind)) {
      if (gpu == to) continue;
      best = std::min(best, system.path(gpu, to).type);
      worst = std::max(worst, system.path(gpu, to).type);
    }
  return {best, worst};
}

}  // namespace orrery::nccl

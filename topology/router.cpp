#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/error.hpp"
#include "topology/cluster.hpp"
#include "topology/node_routes.hpp"

namespace orrery {
struct Router::Impl {
  Cluster cluster;
  std::int32_t pods = 1;
  std::int32_t leaves = 0;
  NodeRoutes routes;
  std::vector<char> arc_binds;    // By arc.
  std::vector<char> cable_binds;  // By NIC · 2 (out) or + 1 (in).
  LinkInstance first_cable = 0, first_trunk = 0, count = 0;

  explicit Impl(const Cluster& source);
  void find_binding();

  struct Place {
    std::int32_t node, gpu;
  };
  Place place(std::int32_t device) const {
    assert(device >= 0 && device < cluster.gpu_count());
    return {device / cluster.node.gpus, device % cluster.node.gpus};
  }
  const NodePath& path_between(std::int32_t from, std::int32_t to) const {
    return routes.between[static_cast<std::size_t>(from * cluster.node.gpus + to)];
  }

  std::int32_t leaf_of(Place at) const {
    const std::int32_t pod = at.node / cluster.fabric.nodes_per_leaf;
    return cluster.fabric.kind == FabricKind::kRailOptimised
               ? routes.nic_of[static_cast<std::size_t>(at.gpu)] * pods + pod
               : pod;
  }
  // All NICs under the leaf switch at full rate, less the oversubscription.
  double trunk_bytes_per_s(std::int32_t leaf) const {
    const std::int32_t pod = leaf % pods;
    const std::int32_t nodes =
        std::min(cluster.fabric.nodes_per_leaf, cluster.nodes - pod * cluster.fabric.nodes_per_leaf);
    const std::int32_t nics =
        cluster.fabric.kind == FabricKind::kRailOptimised ? nodes : nodes * cluster.node.nics;
    return nics * cluster.node.nic_bytes_per_s / cluster.fabric.oversubscription;
  }

  void append(std::int32_t node, const NodePath& path, bool all, std::vector<PathLink>& links) const {
    const auto arcs = static_cast<LinkInstance>(2 * cluster.node.links.size());
    for (const Arc arc : path.arcs)
      if (all || arc_binds[static_cast<std::size_t>(arc)])
        links.push_back(
            {node * arcs + arc, cluster.node.links[static_cast<std::size_t>(arc / 2)].bytes_per_s});
  }
  void append_cable(Place at, bool out, bool all, std::vector<PathLink>& links) const {
    const std::int32_t nic = routes.nic_of[static_cast<std::size_t>(at.gpu)];
    if (all || cable_binds[static_cast<std::size_t>(2 * nic + !out)])
      links.push_back(
          {first_cable + (static_cast<LinkInstance>(at.node) * cluster.node.nics + nic) * 2 + !out,
           cluster.node.nic_bytes_per_s});
  }
  void append_to_leaf(Place at, bool all, std::vector<PathLink>& links) const {
    append(at.node, routes.to_nic[static_cast<std::size_t>(at.gpu)], all, links);
    append_cable(at, true, all, links);
  }
  void append_from_leaf(Place at, bool all, std::vector<PathLink>& links) const {
    append_cable(at, false, all, links);
    append(at.node, routes.from_nic[static_cast<std::size_t>(at.gpu)], all, links);
  }
  void append_trunk(std::int32_t leaf, bool up, bool all, std::vector<PathLink>& links) const {
    if (all || cluster.fabric.oversubscription > 1)
      links.push_back({first_trunk + 2 * leaf + !up, trunk_bytes_per_s(leaf)});
  }

  // Returns the latency.
  double append_path(std::int32_t from_device, std::int32_t to_device, bool all,
                     std::vector<PathLink>& links) const {
    const Place from = place(from_device), to = place(to_device);
    if (from.node == to.node) {
      const NodePath& path = path_between(from.gpu, to.gpu);
      append(from.node, path, all, links);
      return path.latency_s;
    }
    append_to_leaf(from, all, links);
    const std::int32_t up = leaf_of(from), down = leaf_of(to);
    if (up != down) {
      append_trunk(up, true, all, links);
      append_trunk(down, false, all, links);
    }
    append_from_leaf(to, all, links);
    const int switches = up == down ? 1 : 3;  // Leaf, spine, leaf.
    return routes.to_nic[static_cast<std::size_t>(from.gpu)].latency_s +
           routes.from_nic[static_cast<std::size_t>(to.gpu)].latency_s + 2 * cluster.node.nic_latency_s +
           switches * cluster.fabric.hop_latency_s;
  }
  double append_host(std::int32_t device, bool out, bool all, std::vector<PathLink>& links) const {
    if (!routes.has_host)
      fail(ErrorKind::kInput, "node type {} has no CPU, so nothing can be copied between a GPU and the host",
           cluster.node.name);
    const Place at = place(device);
    const NodePath& path = (out ? routes.to_host : routes.from_host)[static_cast<std::size_t>(at.gpu)];
    append(at.node, path, all, links);
    return path.latency_s;
  }
};

Router::Impl::Impl(const Cluster& source) : cluster(source), routes(find_routes(source.node)) {
  const Fabric& fabric = cluster.fabric;
  if (cluster.nodes > 1) {
    if (fabric.kind == FabricKind::kNone)
      fail(ErrorKind::kInput, "cluster {} has {} nodes but no fabric between them; give it one", cluster.name,
           cluster.nodes);
    if (fabric.nodes_per_leaf < 1 || !(fabric.oversubscription > 0))
      fail(ErrorKind::kInput,
           "cluster {}: a fabric needs at least one node per leaf and an oversubscription above 0",
           cluster.name);
    pods = (cluster.nodes + fabric.nodes_per_leaf - 1) / fabric.nodes_per_leaf;
    leaves = fabric.kind == FabricKind::kRailOptimised ? pods * cluster.node.nics : pods;
  }
  first_cable = static_cast<LinkInstance>(2 * cluster.node.links.size()) * cluster.nodes;
  first_trunk = first_cable + 2 * static_cast<LinkInstance>(cluster.node.nics) * cluster.nodes;
  count = first_trunk + 2 * leaves;
  for (const std::int32_t nic : routes.nic_of)
    if (nic < 0 && cluster.nodes > 1)
      fail(ErrorKind::kInput,
           "node type {}: not every GPU has links to a NIC, so cluster {} can't join its {} nodes",
           cluster.node.name, cluster.name, cluster.nodes);
  find_binding();
}

// A link can't bind when all routes over it also cross another link that is no wider. Of two links with the
// same routes and rate the first one stays. A link without routes carries nothing.
void Router::Impl::find_binding() {
  const std::size_t arcs = 2 * cluster.node.links.size();
  const std::size_t elements = arcs + 2 * static_cast<std::size_t>(cluster.node.nics);  // Cables last.
  std::vector<std::vector<std::size_t>> of_route;                                       // Elements.
  std::vector<std::vector<std::size_t>> routes_of(elements);                            // Routes.
  const auto add_route = [&](const NodePath& path, std::size_t cable) {
    std::vector<std::size_t> crossed(path.arcs.begin(), path.arcs.end());
    if (cable < elements) crossed.push_back(cable);
    for (const std::size_t element : crossed) routes_of[element].push_back(of_route.size());
    of_route.push_back(std::move(crossed));
  };
  for (const NodePath& path : routes.between) add_route(path, elements);
  for (std::size_t gpu = 0; gpu < routes.nic_of.size(); ++gpu) {
    add_route(routes.to_host[gpu], elements);
    add_route(routes.from_host[gpu], elements);
    if (routes.nic_of[gpu] < 0) continue;
    const std::size_t cable = arcs + 2 * static_cast<std::size_t>(routes.nic_of[gpu]);
    add_route(routes.to_nic[gpu], cable);
    add_route(routes.from_nic[gpu], cable + 1);
  }
  const auto rate = [&](std::size_t element) {
    return element < arcs ? cluster.node.links[element / 2].bytes_per_s : cluster.node.nic_bytes_per_s;
  };
  // REQUIRES: `other` is on every route of `element`.
  const auto covers = [&](std::size_t other, std::size_t element) {
    if (other == element || rate(other) > rate(element)) return false;
    const bool same = routes_of[other].size() == routes_of[element].size();
    return !same || rate(other) < rate(element) || other < element;
  };
  std::vector<char> binds(elements, 0);
  for (std::size_t element = 0; element < elements; ++element) {
    if (routes_of[element].empty()) continue;
    std::vector<std::size_t> common = of_route[routes_of[element].front()];
    for (const std::size_t route : routes_of[element]) {
      std::erase_if(common, [&](std::size_t other) { return !std::ranges::count(of_route[route], other); });
    }
    binds[element] = std::ranges::none_of(common, [&](std::size_t other) { return covers(other, element); });
  }
  arc_binds.assign(binds.begin(), binds.begin() + static_cast<std::ptrdiff_t>(arcs));
  cable_binds.assign(binds.begin() + static_cast<std::ptrdiff_t>(arcs), binds.end());
}

Router::Router(const Cluster& cluster) : impl_(std::make_unique<Impl>(cluster)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

const Cluster& Router::cluster() const { return impl_->cluster; }
LinkInstance Router::link_count() const { return impl_->count; }

Path Router::path(std::int32_t from_device, std::int32_t to_device) const {
  Path path;
  path.latency_s = impl_->append_path(from_device, to_device, true, path.links);
  path.crosses_nodes = impl_->place(from_device).node != impl_->place(to_device).node;
  return path;
}

Path Router::host_path(std::int32_t device, bool to_host) const {
  Path path;
  path.latency_s = impl_->append_host(device, to_host, true, path.links);
  return path;
}

double Router::append_binding(std::int32_t from_device, std::int32_t to_device,
                              std::vector<PathLink>& links) const {
  return impl_->append_path(from_device, to_device, false, links);
}

double Router::append_host_binding(std::int32_t device, bool to_host, std::vector<PathLink>& links) const {
  return impl_->append_host(device, to_host, false, links);
}

std::int32_t Router::leaf(std::int32_t device) const {
  return impl_->leaves == 0 ? 0 : impl_->leaf_of(impl_->place(device));
}

void Router::append_binding_to_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  impl_->append_to_leaf(impl_->place(device), false, links);
}

void Router::append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  impl_->append_from_leaf(impl_->place(device), false, links);
}

void Router::append_binding_trunk(std::int32_t leaf, bool up, std::vector<PathLink>& links) const {
  impl_->append_trunk(leaf, up, false, links);
}

LinkPlace Router::place(LinkInstance link) const {
  const Impl& impl = *impl_;
  assert(link >= 0 && link < impl.count);
  using enum LinkPlace::Kind;
  const NodeType& node = impl.cluster.node;
  const auto number = [](LinkInstance value) { return static_cast<std::int32_t>(value); };
  if (link < impl.first_cable) {
    const auto arcs = static_cast<LinkInstance>(2 * node.links.size());
    return {kInNode, number(link / arcs), number(link % arcs / 2), link % 2 == 0};
  }
  if (link < impl.first_trunk) {
    const LinkInstance cable = link - impl.first_cable;
    return {kNicCable, number(cable / 2 / node.nics), number(cable / 2 % node.nics), cable % 2 == 0};
  }
  const LinkInstance trunk = link - impl.first_trunk;
  return {kTrunk, -1, number(trunk / 2), trunk % 2 == 0};
}

std::string Router::name(LinkInstance link) const {
  const Cluster& cluster = impl_->cluster;
  const bool rails = cluster.fabric.kind == FabricKind::kRailOptimised;
  const LinkPlace at = place(link);
  const auto leaf_name = [&](std::int32_t leaf) {
    return rails ? fmt::format("leaf{}.{}", leaf / impl_->pods, leaf % impl_->pods)
                 : fmt::format("leaf{}", leaf);
  };
  const auto joined = [&](const std::string& from, const std::string& to) {
    return at.forward ? from + " → " + to : to + " → " + from;
  };
  switch (at.kind) {
    case LinkPlace::Kind::kInNode: {
      const NodeLink& wire = cluster.node.links[static_cast<std::size_t>(at.index)];
      const auto device = [&](std::int32_t index) {
        return fmt::format("node{}.{}", at.node, cluster.node.devices[static_cast<std::size_t>(index)].name);
      };
      return joined(device(wire.a), device(wire.b));
    }
    case LinkPlace::Kind::kNicCable: {
      const std::int32_t pod = at.node / cluster.fabric.nodes_per_leaf;
      return joined(fmt::format("node{}.nic{}", at.node, at.index),
                    leaf_name(rails ? at.index * impl_->pods + pod : pod));
    }
    case LinkPlace::Kind::kTrunk: break;
  }
  return joined(leaf_name(at.index), "spine");
}

}  // namespace orrery

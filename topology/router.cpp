#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/error.hpp"
#include "topology/cluster.hpp"
#include "topology/fabric_routes.hpp"
#include "topology/node_routes.hpp"

namespace orrery {
struct Router::Impl {
  Cluster cluster;
  std::unique_ptr<FabricRoutes> fabric;  // Null in a cluster of one node or NVLink domain.
  NodeRoutes routes;
  std::vector<Arc> to_nvswitch;   // By GPU, where several nodes share their NVSwitch.
  std::vector<char> arc_binds;    // By arc.
  std::vector<char> cable_binds;  // By NIC · 2 (out) or + 1 (in).
  LinkInstance first_cable = 0, first_trunk = 0, count = 0;

  explicit Impl(const Cluster& source);
  void find_nvswitch();
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

  std::int32_t nic_of(Place at) const { return routes.nic_of[static_cast<std::size_t>(at.gpu)]; }
  FabricPort port(Place at) const { return {at.node, nic_of(at)}; }
  bool ecmp() const { return cluster.fabric.routing == FabricRouting::kEcmp; }
  bool same_domain(Place a, Place b) const {
    return a.node / cluster.nodes_per_nvlink_domain == b.node / cluster.nodes_per_nvlink_domain;
  }
  // On which GPU of its node traffic enters the NIC.
  Place sender(Place from, Place to) const {
    const bool detour = cluster.fabric.kind == FabricKind::kRailOnly && nic_of(from) != nic_of(to);
    return detour ? Place{from.node, to.gpu} : from;
  }

  const NodeLink& link_of(Arc arc) const { return cluster.node.links[static_cast<std::size_t>(arc / 2)]; }
  void append(std::int32_t node, const NodePath& path, bool all, std::vector<PathLink>& links) const {
    const auto arcs = static_cast<LinkInstance>(2 * cluster.node.links.size());
    for (const Arc arc : path.arcs)
      if (all || arc_binds[static_cast<std::size_t>(arc)])
        links.push_back({node * arcs + arc, link_of(arc).bytes_per_s});
  }
  void append_cable(Place at, bool out, bool all, std::vector<PathLink>& links) const {
    const std::int32_t nic = nic_of(at);
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
  void append_fabric(std::int32_t from, std::int32_t to, std::int64_t path, bool all,
                     std::vector<PathLink>& links) const {
    if (from == to) return;
    const std::size_t begin = links.size();
    fabric->append_path(from, to, path, links);
    std::size_t end = begin;
    for (std::size_t i = begin; i < links.size(); ++i) {
      if (!all && !fabric->binds(links[i].link)) continue;
      links[end++] = {first_trunk + links[i].link, links[i].bytes_per_s};
    }
    links.resize(end);
  }
  // Connections of two pairs of GPUs are different ones even where they share their NICs.
  std::int64_t fabric_path(Place from, Place to) const {
    const std::int32_t a = fabric->leaf(port(from)), b = fabric->leaf(port(to));
    if (!ecmp()) return fabric->usual_path(a, b);
    const std::int32_t connection = from.gpu * cluster.node.gpus + to.gpu;
    return fabric->hashed_path(a, b, flow_hash(port(from), port(to), connection, cluster.fabric.hash_seed));
  }

  // Returns the latency.
  double append_path(std::int32_t from_device, std::int32_t to_device, bool all,
                     std::vector<PathLink>& links) const {
    const Place from = place(from_device), to = place(to_device);
    if (from.node == to.node) return append_inside(from.node, from.gpu, to.gpu, all, links);
    if (same_domain(from, to)) {
      const Arc up = to_nvswitch[static_cast<std::size_t>(from.gpu)];
      const Arc down = to_nvswitch[static_cast<std::size_t>(to.gpu)] ^ 1;
      append(from.node, {{up}, 0}, all, links);
      append(to.node, {{down}, 0}, all, links);
      return link_of(up).latency_s + link_of(down).latency_s;
    }
    return append_network(from, to, all, links);
  }
  double append_inside(std::int32_t node, std::int32_t from, std::int32_t to, bool all,
                       std::vector<PathLink>& links) const {
    const NodePath& path = path_between(from, to);
    append(node, path, all, links);
    return path.latency_s;
  }
  double append_network(Place source, Place to, bool all, std::vector<PathLink>& links) const {
    const Place from = sender(source, to);
    double latency_s = append_inside(source.node, source.gpu, from.gpu, all, links);
    append_to_leaf(from, all, links);
    const std::int32_t up = fabric->leaf(port(from)), down = fabric->leaf(port(to));
    if (up != down) append_fabric(up, down, fabric_path(from, to), all, links);
    append_from_leaf(to, all, links);
    latency_s += routes.to_nic[static_cast<std::size_t>(from.gpu)].latency_s +
                 routes.from_nic[static_cast<std::size_t>(to.gpu)].latency_s +
                 2 * cluster.node.nic_latency_s + fabric->switches(up, down) * cluster.fabric.hop_latency_s;
    return latency_s;
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
  if (cluster.nodes_per_nvlink_domain > 1) find_nvswitch();
  if (cluster.nodes > cluster.nodes_per_nvlink_domain) {
    fabric = make_fabric_routes(cluster, !ecmp());
    for (const std::int32_t nic : routes.nic_of)
      if (nic < 0)
        fail(ErrorKind::kInput,
             "node type {}: not every GPU has links to a NIC, so cluster {} can't join its {} nodes",
             cluster.node.name, cluster.name, cluster.nodes);
  }
  first_cable = static_cast<LinkInstance>(2 * cluster.node.links.size()) * cluster.nodes;
  first_trunk = first_cable + 2 * static_cast<LinkInstance>(cluster.node.nics) * cluster.nodes;
  count = first_trunk + (fabric ? fabric->link_count() : 0);
  find_binding();
}

// Each GPU's NVLink to the switch that its node shares with others.
void Router::Impl::find_nvswitch() {
  const NodeType& node = cluster.node;
  to_nvswitch.assign(static_cast<std::size_t>(node.gpus), -1);
  const auto is_switch = [&](std::int32_t device) {
    return node.devices[static_cast<std::size_t>(device)].kind == DeviceKind::kNvSwitch;
  };
  for (std::size_t i = 0; i < node.links.size(); ++i) {
    const NodeLink& link = node.links[i];
    const auto arc = static_cast<Arc>(2 * i);
    if (link.a < node.gpus && is_switch(link.b)) to_nvswitch[static_cast<std::size_t>(link.a)] = arc;
    if (link.b < node.gpus && is_switch(link.a)) to_nvswitch[static_cast<std::size_t>(link.b)] = arc + 1;
  }
  if (std::ranges::count(to_nvswitch, -1) > 0)
    fail(ErrorKind::kInput,
         "node type {}: not every GPU has an NVLink to an NVSwitch, so {} nodes can't share one; leave "
         "nvlink_domain out",
         node.name, cluster.nodes_per_nvlink_domain);
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
  for (const Arc up : to_nvswitch) {  // To and from other nodes of the NVLink domain.
    add_route({{up}, 0}, elements);
    add_route({{up ^ 1}, 0}, elements);
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
  path.crosses_network = !impl_->same_domain(impl_->place(from_device), impl_->place(to_device));
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
  return impl_->fabric ? impl_->fabric->leaf(impl_->port(impl_->place(device))) : 0;
}

void Router::append_binding_to_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  impl_->append_to_leaf(impl_->place(device), false, links);
}

void Router::append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  impl_->append_from_leaf(impl_->place(device), false, links);
}

void Router::append_binding_between_leaves(std::int32_t from, std::int32_t to,
                                           std::vector<PathLink>& links) const {
  assert(parts_join());
  if (from != to) impl_->append_fabric(from, to, impl_->fabric->usual_path(from, to), false, links);
}

bool Router::parts_join() const {
  return !impl_->ecmp() && impl_->cluster.fabric.kind != FabricKind::kRailOnly;
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
  const LinkPlace at = place(link);
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
      const FabricRoutes* fabric = impl_->fabric.get();
      return joined(fmt::format("node{}.nic{}", at.node, at.index),
                    fabric == nullptr ? "nothing" : fabric->leaf_name(fabric->leaf({at.node, at.index})));
    }
    case LinkPlace::Kind::kTrunk: break;
  }
  return impl_->fabric->link_name(link - impl_->first_trunk);
}

}  // namespace orrery

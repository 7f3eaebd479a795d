#include "topology/node_routes.hpp"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <cassert>
#include <limits>

#include "base/error.hpp"

namespace orrery {
namespace {

// A shorter class of links always wins, then fewer links: NVLink before chip-to-chip links before PCIe before
// crossing between CPUs.
std::int64_t weight(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvLink: return 1;
    case LinkKind::kC2c: return 100;
    case LinkKind::kPcie: return 1'000;
    case LinkKind::kCpuInterconnect: return 1'000'000;
    case LinkKind::kNetwork: return 1'000'000'000;
  }
  return 0;
}

struct ArcProperty {
  std::int64_t weight = 0;
  Arc arc = -1;  // −1: through a device.
};
using RouteGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, ArcProperty>;
using RouteEdge = boost::graph_traits<RouteGraph>::edge_descriptor;

// Shortest routes of a node type from one device. Every device is two vertices, its entrance and its exit;
// GPUs and NICs have no edge from entrance to exit, so that they never forward other devices' traffic.
class ShortestWays {
 public:
  explicit ShortestWays(const NodeType& node) : node_(node), graph_(2 * node.devices.size()) {
    for (std::size_t i = 0; i < node.links.size(); ++i) {
      const NodeLink& link = node.links[i];
      const auto arc = static_cast<Arc>(2 * i);
      boost::add_edge(exit(link.a), entrance(link.b), ArcProperty{weight(link.kind), arc}, graph_);
      boost::add_edge(exit(link.b), entrance(link.a), ArcProperty{weight(link.kind), arc + 1}, graph_);
    }
    for (std::int32_t d = 0; d < static_cast<std::int32_t>(node.devices.size()); ++d) {
      const DeviceKind kind = node.devices[static_cast<std::size_t>(d)].kind;
      if (kind != DeviceKind::kGpu && kind != DeviceKind::kNic)
        boost::add_edge(entrance(d), exit(d), ArcProperty{}, graph_);
    }
  }

  void start_at(std::int32_t device) {
    source_ = device;
    const std::size_t vertices = boost::num_vertices(graph_);
    distance_.assign(vertices, kUnreachable);
    into_.assign(vertices, RouteEdge());
    boost::dijkstra_shortest_paths(
        graph_, exit(device),
        boost::weight_map(boost::get(&ArcProperty::weight, graph_))
            .distance_map(
                boost::make_iterator_property_map(distance_.begin(), boost::get(boost::vertex_index, graph_)))
            .distance_inf(kUnreachable)
            .visitor(boost::make_dijkstra_visitor(boost::record_edge_predecessors(
                boost::make_iterator_property_map(into_.begin(), boost::get(boost::vertex_index, graph_)),
                boost::on_edge_relaxed()))));
  }

  bool reaches(std::int32_t device) const { return distance_[entrance(device)] < kUnreachable; }
  std::int64_t distance(std::int32_t device) const { return distance_[entrance(device)]; }

  NodePath to(std::int32_t device) const {
    assert(reaches(device));
    NodePath path;
    for (std::size_t at = entrance(device); at != exit(source_);) {
      const RouteEdge edge = into_[at];
      if (const Arc arc = graph_[edge].arc; arc >= 0) {
        path.arcs.push_back(arc);
        path.latency_s += node_.links[static_cast<std::size_t>(arc / 2)].latency_s;
      }
      at = boost::source(edge, graph_);
    }
    std::ranges::reverse(path.arcs);
    return path;
  }

 private:
  static constexpr std::int64_t kUnreachable = std::numeric_limits<std::int64_t>::max();
  static std::size_t entrance(std::int32_t device) { return 2 * static_cast<std::size_t>(device); }
  static std::size_t exit(std::int32_t device) { return entrance(device) + 1; }

  const NodeType& node_;
  RouteGraph graph_;
  std::int32_t source_ = 0;
  std::vector<std::int64_t> distance_;
  std::vector<RouteEdge> into_;
};

// The same cables the other way round. Links are full duplex with equal rates, so the shortest way back is a
// shortest way there.
NodePath reversed(const NodePath& path) {
  NodePath back{path.arcs, path.latency_s};
  std::ranges::reverse(back.arcs);
  for (Arc& arc : back.arcs) arc ^= 1;
  return back;
}

NodePath joined(NodePath first, const NodePath& second) {
  first.arcs.insert(first.arcs.end(), second.arcs.begin(), second.arcs.end());
  first.latency_s += second.latency_s;
  return first;
}

// Of the devices of `kind`, the nearest to the current start. Of several equally near ones the one with the
// start's own index, else one chosen by that index.
std::int32_t nearest_device(const NodeType& node, const ShortestWays& routes, DeviceKind kind,
                            std::int32_t start) {
  std::vector<std::int32_t> nearest;  // Counted within the kind.
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  std::int32_t first = -1;
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(node.devices.size()); ++d) {
    if (node.devices[static_cast<std::size_t>(d)].kind != kind) continue;
    if (first < 0) first = d;
    if (!routes.reaches(d) || routes.distance(d) > best) continue;
    if (routes.distance(d) < best) nearest.clear();
    best = routes.distance(d);
    nearest.push_back(d);
  }
  if (nearest.empty()) return -1;
  if (kind == DeviceKind::kNic && std::ranges::find(nearest, first + start) != nearest.end())
    return first + start;
  return kind == DeviceKind::kNic ? nearest[static_cast<std::size_t>(start) % nearest.size()]
                                  : nearest.front();
}

std::int32_t first_of(const NodeType& node, DeviceKind kind) {
  const auto found = std::ranges::find(node.devices, kind, &NodeDevice::kind);
  return static_cast<std::int32_t>(found - node.devices.begin());
}

// What a binding says for the start, as a device; −1: there is no binding.
std::int32_t bound_device(const NodeType& node, const ShortestWays& ways,
                          const std::vector<std::int32_t>& bound, DeviceKind kind, std::int32_t start) {
  if (bound.empty()) return -1;
  const auto count = static_cast<std::int32_t>(std::ranges::count(node.devices, kind, &NodeDevice::kind));
  const char* const what = kind == DeviceKind::kNic ? "NIC" : "CPU";
  if (std::ssize(bound) != node.gpus)
    fail(ErrorKind::kInput, "node type {}: {} GPUs are bound to {}s, but there are {}; name one for each",
         node.name, bound.size(), what, node.gpus);
  const std::int32_t number = bound[static_cast<std::size_t>(start)];
  if (number < 0 || number >= count)
    fail(ErrorKind::kInput, "node type {}: GPU {} is bound to {} {}; there are {}, numbered from 0",
         node.name, start, what, number, count);
  const std::int32_t device = first_of(node, kind) + number;
  if (!ways.reaches(device))
    fail(ErrorKind::kInput, "node type {}: no links lead from GPU {} to {} {}, to which it is bound",
         node.name, start, what, number);
  return device;
}

bool passes_cpu(const NodeType& node, const NodePath& path) {
  return std::ranges::any_of(path.arcs, [&](Arc arc) {
    const NodeLink& link = node.links[static_cast<std::size_t>(arc / 2)];
    return node.devices[static_cast<std::size_t>(arc % 2 == 0 ? link.b : link.a)].kind == DeviceKind::kCpu;
  });
}

}  // namespace

NodeRoutes find_routes(const NodeType& node) {
  NodeRoutes found;
  ShortestWays ways(node);
  for (std::int32_t gpu = 0; gpu < node.gpus; ++gpu) {
    ways.start_at(gpu);
    for (std::int32_t to = 0; to < node.gpus; ++to) {
      if (!ways.reaches(to) && to != gpu)
        fail(ErrorKind::kInput, "node type {}: no links lead from {} to {}; add some", node.name,
             node.devices[static_cast<std::size_t>(gpu)].name,
             node.devices[static_cast<std::size_t>(to)].name);
      found.between.push_back(to == gpu ? NodePath{} : ways.to(to));
    }
    std::int32_t nic = bound_device(node, ways, node.nic_of_gpu, DeviceKind::kNic, gpu);
    if (nic < 0) nic = nearest_device(node, ways, DeviceKind::kNic, gpu);
    found.nic_of.push_back(nic < 0 ? -1 : nic - node.gpus);
    found.to_nic.push_back(nic < 0 ? NodePath{} : ways.to(nic));
    const std::int32_t bound_cpu = bound_device(node, ways, node.cpu_of_gpu, DeviceKind::kCpu, gpu);
    const std::int32_t cpu = bound_cpu < 0 ? nearest_device(node, ways, DeviceKind::kCpu, gpu) : bound_cpu;
    found.has_host = cpu >= 0 && (gpu == 0 || found.has_host);
    found.to_host.push_back(cpu < 0 ? NodePath{} : ways.to(cpu));
    found.from_host.push_back(reversed(found.to_host.back()));
    if (bound_cpu >= 0 && passes_cpu(node, found.to_nic.back())) {
      ways.start_at(bound_cpu);
      found.to_nic.back() = joined(found.to_host.back(), ways.to(nic));
    }
    found.from_nic.push_back(reversed(found.to_nic.back()));
  }
  return found;
}

}  // namespace orrery

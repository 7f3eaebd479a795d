#include "topology/ring_order.hpp"

#include <algorithm>
#include <cassert>
#include <limits>

namespace orrery {
namespace {

const NodePath& way(const NodeType& node, const NodeRoutes& routes, std::int32_t from, std::int32_t to) {
  return routes.between[static_cast<std::size_t>(from * node.gpus + to)];
}

double rate(const NodeType& node, Arc arc) {
  return node.links[static_cast<std::size_t>(arc / 2)].bytes_per_s;
}

// Where an arc ends.
DeviceKind end_kind(const NodeType& node, Arc arc) {
  const NodeLink& link = node.links[static_cast<std::size_t>(arc / 2)];
  return node.devices[static_cast<std::size_t>(arc % 2 == 0 ? link.b : link.a)].kind;
}

}  // namespace

nccl::PathClass path_class(const NodeType& node, const NodePath& path) {
  using enum nccl::PathClass;
  if (path.arcs.empty()) return kLoc;
  int bridges = 0, cpus = 0;
  bool nvlink = true;
  for (const Arc arc : path.arcs) {
    const LinkKind kind = node.links[static_cast<std::size_t>(arc / 2)].kind;
    if (kind == LinkKind::kNetwork) return kNet;
    nvlink = nvlink && kind == LinkKind::kNvLink;
    bridges += end_kind(node, arc) == DeviceKind::kPcieSwitch;
    cpus += end_kind(node, arc) == DeviceKind::kCpu;
  }
  if (nvlink) return kNvl;
  if (cpus > 1) return kSys;
  if (cpus == 1) return kPhb;
  return bridges > 1 ? kPxb : kPix;
}

double RingCost::all_reduce_seconds(std::int64_t bytes) const {
  const auto ranks = static_cast<double>(rings.front().size());
  return 2 * (ranks - 1) * (step_latency_s + static_cast<double>(bytes) / ranks / bytes_per_s);
}

RingCost ring_cost(const NodeType& node, const NodeRoutes& routes, std::span<const RingOrder> rings) {
  assert(!rings.empty() && rings.front().size() > 1);
  std::vector<std::int32_t> users(2 * node.links.size(), 0);
  const auto for_edges = [&](const RingOrder& ring, auto&& act) {
    for (std::size_t i = 0; i < ring.size(); ++i) act(ring[i], ring[(i + 1) % ring.size()]);
  };
  for (const RingOrder& ring : rings)
    for_edges(ring, [&](std::int32_t from, std::int32_t to) {
      for (const Arc arc : way(node, routes, from, to).arcs) ++users[static_cast<std::size_t>(arc)];
    });

  RingCost cost;
  double slowest = std::numeric_limits<double>::infinity(), links = 0, edges = 0;
  for (const RingOrder& ring : rings) {
    std::vector<RingEdge>& list = cost.rings.emplace_back();
    for_edges(ring, [&](std::int32_t from, std::int32_t to) {
      const NodePath& path = way(node, routes, from, to);
      RingEdge edge{from, to, path_class(node, path), static_cast<std::int32_t>(path.arcs.size()),
                    path.latency_s};
      edge.alone_bytes_per_s = edge.bytes_per_s = std::numeric_limits<double>::infinity();
      for (const Arc arc : path.arcs) {
        const std::int32_t sharing = users[static_cast<std::size_t>(arc)];
        edge.alone_bytes_per_s = std::min(edge.alone_bytes_per_s, rate(node, arc));
        if (rate(node, arc) / sharing >= edge.bytes_per_s) continue;
        edge.bytes_per_s = rate(node, arc) / sharing;
        edge.narrowest = arc;
        edge.sharing = sharing;
      }
      slowest = std::min(slowest, edge.bytes_per_s);
      cost.step_latency_s = std::max(cost.step_latency_s, edge.latency_s);
      links += edge.links;
      ++edges;
      list.push_back(edge);
    });
  }
  cost.bytes_per_s = slowest * static_cast<double>(rings.size());
  cost.mean_links = links / edges;
  return cost;
}

}  // namespace orrery

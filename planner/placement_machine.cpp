#include "planner/placement_machine.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <map>
#include <numeric>

#include "topology/ring_order.hpp"

namespace orrery {
namespace {

// Devices that paths of at most this class join, directly or over each other.
std::vector<DeviceBox> joined(const NodeType& node, const NodeRoutes& routes,
                              const std::vector<std::int32_t>& gpus, nccl::PathClass worst) {
  std::vector<DeviceBox> boxes;
  std::vector<char> seen(static_cast<std::size_t>(node.gpus), 0);
  for (const std::int32_t start : gpus) {
    if (seen[static_cast<std::size_t>(start)]) continue;
    DeviceBox box{{start}, {}};
    seen[static_cast<std::size_t>(start)] = 1;
    for (std::size_t i = 0; i < box.devices.size(); ++i) {
      for (const std::int32_t other : gpus) {
        const NodePath& path = routes.between[static_cast<std::size_t>(box.devices[i] * node.gpus + other)];
        if (seen[static_cast<std::size_t>(other)] || path_class(node, path) > worst) continue;
        seen[static_cast<std::size_t>(other)] = 1;
        box.devices.push_back(other);
      }
    }
    std::ranges::sort(box.devices);
    boxes.push_back(std::move(box));
  }
  return boxes;
}

// Classes from far to near; a step that tells nothing apart is left out.
void divide(const NodeType& node, const NodeRoutes& routes, DeviceBox& box, std::size_t level) {
  using enum nccl::PathClass;
  constexpr std::array kLevels = {kPhb, kPxb, kPix, kNvb};
  for (; level < kLevels.size(); ++level) {
    std::vector<DeviceBox> boxes = joined(node, routes, box.devices, kLevels[level]);
    if (boxes.size() < 2 || boxes.size() == box.devices.size()) continue;
    for (DeviceBox& inner : boxes) divide(node, routes, inner, level + 1);
    box.boxes = std::move(boxes);
    return;
  }
}

void shift(DeviceBox& box, std::int32_t by) {
  for (std::int32_t& device : box.devices) device += by;
  for (DeviceBox& inner : box.boxes) shift(inner, by);
}

}  // namespace

std::vector<std::int32_t> nearest_cpus(const NodeType& node) {
  NodeType unbound = node;
  unbound.cpu_of_gpu.clear();
  const NodeRoutes routes = find_routes(unbound);
  std::vector<std::int32_t> cpus;
  for (const NodePath& path : routes.to_host) {
    if (path.arcs.empty()) {
      cpus.push_back(-1);
      continue;
    }
    const Arc last = path.arcs.back();
    const NodeLink& link = node.links[static_cast<std::size_t>(last / 2)];
    const auto end = node.devices.begin() + (last % 2 == 0 ? link.b : link.a);
    cpus.push_back(static_cast<std::int32_t>(
        std::ranges::count(node.devices.begin(), end, DeviceKind::kCpu, &NodeDevice::kind)));
  }
  return cpus;
}

LinkKind link_kind(const Router& router, LinkInstance link) {
  const LinkPlace place = router.place(link);
  return place.kind == LinkPlace::Kind::kInNode
             ? router.cluster().node.links[static_cast<std::size_t>(place.index)].kind
             : LinkKind::kNetwork;
}

PlacementMachine::PlacementMachine(const Cluster& cluster)
    : router_(cluster), routes_(find_routes(cluster.node)), cpu_of_(nearest_cpus(cluster.node)) {}

std::int32_t PlacementMachine::pcie_hops(std::int32_t from, std::int32_t to) const {
  assert(node(from) == node(to));
  const NodeType& type = cluster().node;
  const NodePath& path = routes_.between[static_cast<std::size_t>(gpu(from) * type.gpus + gpu(to))];
  return static_cast<std::int32_t>(std::ranges::count_if(path.arcs, [&](Arc arc) {
    const LinkKind kind = type.links[static_cast<std::size_t>(arc / 2)].kind;
    return kind == LinkKind::kPcie || kind == LinkKind::kCpuInterconnect;
  }));
}

std::vector<double> PlacementMachine::link_seconds_per_byte() const {
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(devices()) * static_cast<std::size_t>(devices()));
  for (std::int32_t from = 0; from < devices(); ++from) {
    for (std::int32_t to = 0; to < devices(); ++to) {
      double sum = 0;
      if (from != to) {
        for (const PathLink& link : router_.path(from, to).links) sum += 1 / link.bytes_per_s;
      }
      seconds.push_back(sum);
    }
  }
  return seconds;
}

std::vector<DeviceBox> PlacementMachine::node_boxes(std::int32_t node) const {
  DeviceBox box;
  box.devices.resize(static_cast<std::size_t>(cluster().node.gpus));
  std::iota(box.devices.begin(), box.devices.end(), 0);
  divide(cluster().node, routes_, box, 0);
  shift(box, node * cluster().node.gpus);
  return std::move(box.boxes);
}

DeviceBox PlacementMachine::boxes() const {
  const std::int32_t gpus = cluster().node.gpus;
  std::map<std::int32_t, DeviceBox> pods;  // Nodes whose first GPUs share a leaf switch.
  for (std::int32_t n = 0; n < cluster().nodes; ++n) {
    DeviceBox box;
    for (std::int32_t g = 0; g < gpus; ++g) box.devices.push_back(n * gpus + g);
    box.boxes = node_boxes(n);
    DeviceBox& pod = pods[router_.leaf(n * gpus)];
    pod.devices.insert(pod.devices.end(), box.devices.begin(), box.devices.end());
    pod.boxes.push_back(std::move(box));
  }
  if (cluster().nodes == 1) return std::move(pods.begin()->second.boxes.front());
  if (pods.size() == 1) return std::move(pods.begin()->second);
  DeviceBox all;
  for (auto& [leaf, pod] : pods) {
    all.devices.insert(all.devices.end(), pod.devices.begin(), pod.devices.end());
    const bool one_node = pod.boxes.size() == 1;
    all.boxes.push_back(one_node ? std::move(pod.boxes.front()) : std::move(pod));
  }
  std::ranges::sort(all.devices);
  return all;
}

}  // namespace orrery

#pragma once
// A cluster as placements see it: who is near whom.

#include <cstdint>
#include <vector>

#include "topology/cluster.hpp"
#include "topology/node_routes.hpp"

namespace orrery {

// The CPU nearest to each GPU, counted among the CPUs; −1 without any.
std::vector<std::int32_t> nearest_cpus(const NodeType& node);

// What a link instance is of.
LinkKind link_kind(const Router& router, LinkInstance link);

// Devices that are closer to each other than to others, and the same inside.
struct DeviceBox {
  std::vector<std::int32_t> devices;  // Ascending.
  std::vector<DeviceBox> boxes;       // Together all of `devices`; empty: nothing tells them apart.
};

class PlacementMachine {
 public:
  // THROWS Error(kInput) as Router does.
  explicit PlacementMachine(const Cluster& cluster);

  const Router& router() const { return router_; }
  const Cluster& cluster() const { return router_.cluster(); }
  std::int32_t devices() const { return cluster().gpu_count(); }
  std::int32_t node(std::int32_t device) const { return device / cluster().node.gpus; }
  std::int32_t gpu(std::int32_t device) const { return device % cluster().node.gpus; }
  std::int32_t cpu(std::int32_t device) const { return cpu_of_[static_cast<std::size_t>(gpu(device))]; }

  // PCIe links and links between CPUs on the way between two GPUs of a node. REQUIRES: they are.
  std::int32_t pcie_hops(std::int32_t from, std::int32_t to) const;
  bool within_hops(std::int32_t from, std::int32_t to, std::int32_t limit) const {
    return node(from) == node(to) && pcie_hops(from, to) <= limit;
  }

  // Seconds for which a byte occupies the links on its way, added up: by sender · devices + receiver.
  std::vector<double> link_seconds_per_byte() const;

  // The cluster, its pods, nodes, sockets, PCIe switches and GPUs joined by NVLink.
  DeviceBox boxes() const;

 private:
  std::vector<DeviceBox> node_boxes(std::int32_t node) const;

  Router router_;
  NodeRoutes routes_;
  std::vector<std::int32_t> cpu_of_;  // By GPU of a node.
};

}  // namespace orrery

#pragma once
// Paths as the links that can hold traffic back: the Router's binding ones, and those that faults make
// narrower, wherever they lie; through other network cards where a Rerouting says so.

#include <cstdint>
#include <utility>
#include <vector>

#include "simulator/job.hpp"
#include "topology/cluster.hpp"

namespace orrery::folding {

struct NarrowedLink {
  LinkInstance link = 0;
  std::int32_t node = 0;  // It belongs to a device of this node; −1: to the fabric.
  double bytes_per_s = 0;
};

// Same functions as Router's.
class LinkPaths {
 public:
  // Without faults a Router serves in its place.
  LinkPaths(const Router& router, std::vector<NarrowedLink> narrowed = {}, Rerouting rerouting = {});

  double append_binding(std::int32_t from_device, std::int32_t to_device, std::vector<PathLink>& links) const;
  double append_host_binding(std::int32_t device, bool to_host, std::vector<PathLink>& links) const;
  std::int32_t leaf(std::int32_t device) const { return router_.leaf(relay(device)); }
  // REQUIRES: the cluster has several NVLink domains.
  void append_binding_to_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_binding_between_leaves(std::int32_t from, std::int32_t to, std::vector<PathLink>& links) const {
    router_.append_binding_between_leaves(from, to, links);
  }
  bool rerouted() const { return rerouting_ != Rerouting{}; }
  // The GPU through whose network card the device reaches other nodes.
  std::int32_t relay(std::int32_t device) const {
    return rerouting_.relay.empty() ? device : rerouting_.relay[static_cast<std::size_t>(device)];
  }
  std::int32_t ring_position(std::int32_t device) const {
    return rerouting_.ring_position.empty() ? device % cluster().node.gpus
                                            : rerouting_.ring_position[static_cast<std::size_t>(device)];
  }
  // Which cables of the fabric a fault narrows follows from whole paths only.
  bool parts_join() const { return router_.parts_join() && !fabric_narrowed(); }
  LinkInstance link_count() const { return router_.link_count(); }
  const Cluster& cluster() const { return router_.cluster(); }

  const std::vector<NarrowedLink>& narrowed() const { return narrowed_; }

 private:
  // Without relays.
  double append_segment(std::int32_t from_device, std::int32_t to_device, std::vector<PathLink>& links) const;
  void append_segment_to_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_segment_from_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  std::int32_t node(std::int32_t device) const { return device / cluster().node.gpus; }
  bool touched(std::int32_t device) const;
  bool fabric_narrowed() const { return !by_node_.empty() && by_node_.front().first < 0; }
  bool narrowed_at(LinkInstance link, std::int32_t node) const;
  // Those links of `path` that are narrowed, belong to the node (−1: the fabric) and don't stand in `links`
  // from `begin` on.
  void add_narrowed(const Path& path, std::int32_t node, std::size_t begin,
                    std::vector<PathLink>& links) const;

  const Router& router_;
  std::vector<NarrowedLink> narrowed_;
  std::vector<std::pair<std::int32_t, LinkInstance>> by_node_;  // Of narrowed_, sorted.
  Rerouting rerouting_;
};

// Both directions of the links between a GPU and its node's other GPUs, of its network card's cable, or of
// the cables up from the switch where that card hangs, as far as the GPU's traffic takes them. Empty when
// there are none.
std::vector<NarrowedLink> nvlinks_of(const Router& router, std::int32_t device);
// Those between two GPUs of one node.
std::vector<NarrowedLink> nvlinks_between(const Router& router, std::int32_t device, std::int32_t other);
std::vector<NarrowedLink> nic_links_of(const Router& router, std::int32_t device);
std::vector<NarrowedLink> uplinks_of(const Router& router, std::int32_t device);

}  // namespace orrery::folding

#pragma once
// Paths as the links that can hold traffic back: the Router's binding ones, and those that faults make
// narrower, wherever they lie.

#include <cstdint>
#include <vector>

#include "topology/cluster.hpp"

namespace orrery::folding {

struct NarrowedLink {
  LinkInstance link = 0;
  std::int32_t node = 0;  // It belongs to a device of this node.
};

// Same functions as Router's.
class LinkPaths {
 public:
  // Without faults a Router serves in its place.
  LinkPaths(const Router& router, std::vector<NarrowedLink> narrowed = {});

  double append_binding(std::int32_t from_device, std::int32_t to_device, std::vector<PathLink>& links) const;
  double append_host_binding(std::int32_t device, bool to_host, std::vector<PathLink>& links) const;
  std::int32_t leaf(std::int32_t device) const { return router_.leaf(device); }
  // REQUIRES: the cluster has several NVLink domains.
  void append_binding_to_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const;
  void append_binding_between_leaves(std::int32_t from, std::int32_t to, std::vector<PathLink>& links) const {
    router_.append_binding_between_leaves(from, to, links);
  }
  bool parts_join() const { return router_.parts_join(); }
  LinkInstance link_count() const { return router_.link_count(); }
  const Cluster& cluster() const { return router_.cluster(); }

  const std::vector<NarrowedLink>& narrowed() const { return narrowed_; }

 private:
  std::int32_t node(std::int32_t device) const { return device / cluster().node.gpus; }
  bool touched(std::int32_t device) const;
  bool narrowed_at(LinkInstance link, std::int32_t node) const;
  // Those links of `path` that are narrowed, belong to the node and don't stand in `links` from `begin` on.
  void add_narrowed(const Path& path, std::int32_t node, std::size_t begin,
                    std::vector<PathLink>& links) const;

  const Router& router_;
  std::vector<NarrowedLink> narrowed_;
};

// Both directions of the links between a GPU and its node's other GPUs, or of its network card's cable. Empty
// when there are none.
std::vector<NarrowedLink> nvlinks_of(const Router& router, std::int32_t device);
std::vector<NarrowedLink> nic_links_of(const Router& router, std::int32_t device);

}  // namespace orrery::folding

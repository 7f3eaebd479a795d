#pragma once
// Paths through the fabric, from leaf switch to leaf switch. Whoever wants a path between GPUs asks the
// Router, which joins these to the routes inside nodes.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "topology/cluster.hpp"

namespace orrery {

struct FabricPort {
  std::int32_t node = 0;
  std::int32_t nic = 0;
};

// Of one connection. The same for the same ends, queue pair and seed.
std::uint64_t flow_hash(FabricPort from, FabricPort to, std::int32_t queue_pair, std::uint64_t seed);

// Links are directions of cables, or of bundles of cables, numbered 0 … count − 1: twice the cable's number,
// plus one for the direction down (or back). Paths between two leaf switches are equally long; they are
// numbered too.
class FabricRoutes {
 public:
  virtual ~FabricRoutes() = default;

  virtual std::int32_t leaf_count() const = 0;
  virtual std::int32_t leaf(FabricPort port) const = 0;  // In a torus the node's router.
  virtual std::string leaf_name(std::int32_t leaf) const = 0;

  // 1 from a leaf switch to itself, 0 when nothing joins the two.
  virtual std::int64_t path_count(std::int32_t from_leaf, std::int32_t to_leaf) const = 0;
  // Which of them a hash leads to.
  virtual std::int64_t hashed_path(std::int32_t from_leaf, std::int32_t to_leaf,
                                   std::uint64_t hash) const = 0;
  // The path that stands for all when one must: of leaf pairs each takes another one.
  virtual std::int64_t usual_path(std::int32_t from_leaf, std::int32_t to_leaf) const = 0;
  // REQUIRES: path < path_count().
  virtual void append_path(std::int32_t from_leaf, std::int32_t to_leaf, std::int64_t path,
                           std::vector<PathLink>& links) const = 0;
  // That a path passes, leaf switches included.
  virtual std::int32_t switches(std::int32_t from_leaf, std::int32_t to_leaf) const = 0;

  virtual LinkInstance link_count() const = 0;
  // Whether traffic could be held back by this link alone: not by one that carries all that comes from below.
  virtual bool binds(LinkInstance link) const = 0;
  virtual std::string link_name(LinkInstance link) const = 0;
};

// `bundled`: in fat trees and rails all cables from a switch to the tier above are one link with their summed
// bandwidth: what adaptive routing makes of them. Dragonflies and tori are the same either way.
// THROWS Error(kInput) when the description can't be built.
// REQUIRES: the cluster has several nodes.
std::unique_ptr<FabricRoutes> make_fabric_routes(const Cluster& cluster, bool bundled);

}  // namespace orrery

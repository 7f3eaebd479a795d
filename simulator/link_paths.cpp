#include "simulator/link_paths.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace orrery::folding {
namespace {

// A device that is reached over the network; what lies on this one's node is the same for all of them with
// the same index.
std::int32_t far_device(const Cluster& cluster, std::int32_t device) {
  const std::int32_t domain = cluster.gpus_per_domain();
  assert(cluster.gpu_count() > domain);
  return device % cluster.node.gpus + (device < domain ? domain : 0);
}

// The links of `path` at places that `wanted` accepts.
template <class Wanted>
void add_wanted(const Router& router, const Path& path, std::int32_t node, Wanted&& wanted,
                std::vector<NarrowedLink>& links) {
  for (const PathLink& link : path.links) {
    const bool known =
        std::ranges::any_of(links, [&](const NarrowedLink& other) { return other.link == link.link; });
    if (!known && wanted(router.place(link.link))) links.push_back({link.link, node});
  }
}

}  // namespace

LinkPaths::LinkPaths(const Router& router, std::vector<NarrowedLink> narrowed)
    : router_(router), narrowed_(std::move(narrowed)) {}

double LinkPaths::append_binding(std::int32_t from_device, std::int32_t to_device,
                                 std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  const double latency_s = router_.append_binding(from_device, to_device, links);
  if (touched(from_device) || touched(to_device)) {
    const Path path = router_.path(from_device, to_device);
    add_narrowed(path, node(from_device), begin, links);
    if (node(from_device) != node(to_device)) add_narrowed(path, node(to_device), begin, links);
  }
  return latency_s;
}

double LinkPaths::append_host_binding(std::int32_t device, bool to_host, std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  const double latency_s = router_.append_host_binding(device, to_host, links);
  if (touched(device)) add_narrowed(router_.host_path(device, to_host), node(device), begin, links);
  return latency_s;
}

void LinkPaths::append_binding_to_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  router_.append_binding_to_leaf(device, links);
  if (touched(device))
    add_narrowed(router_.path(device, far_device(cluster(), device)), node(device), begin, links);
}

void LinkPaths::append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  router_.append_binding_from_leaf(device, links);
  if (touched(device))
    add_narrowed(router_.path(far_device(cluster(), device), device), node(device), begin, links);
}

bool LinkPaths::touched(std::int32_t device) const {
  return std::ranges::any_of(narrowed_, [&](const NarrowedLink& one) { return one.node == node(device); });
}

bool LinkPaths::narrowed_at(LinkInstance link, std::int32_t node) const {
  return std::ranges::any_of(narrowed_,
                             [&](const NarrowedLink& one) { return one.link == link && one.node == node; });
}

void LinkPaths::add_narrowed(const Path& path, std::int32_t node, std::size_t begin,
                             std::vector<PathLink>& links) const {
  const auto first = static_cast<std::ptrdiff_t>(begin);
  for (const PathLink& link : path.links) {
    const bool there = std::any_of(links.begin() + first, links.end(),
                                   [&](const PathLink& other) { return other.link == link.link; });
    if (!there && narrowed_at(link.link, node)) links.push_back(link);
  }
}

std::vector<NarrowedLink> nvlinks_of(const Router& router, std::int32_t device) {
  const NodeType& node = router.cluster().node;
  const std::int32_t gpu = device % node.gpus, at = device / node.gpus;
  std::vector<NarrowedLink> links;
  const auto wanted = [&](const LinkPlace& place) {
    if (place.kind != LinkPlace::Kind::kInNode || place.node != at) return false;
    const NodeLink& link = node.links[static_cast<std::size_t>(place.index)];
    return link.kind == LinkKind::kNvLink && (link.a == gpu || link.b == gpu);
  };
  for (std::int32_t other = at * node.gpus; other < (at + 1) * node.gpus; ++other) {
    if (other == device) continue;
    add_wanted(router, router.path(device, other), at, wanted, links);
    add_wanted(router, router.path(other, device), at, wanted, links);
  }
  return links;
}

std::vector<NarrowedLink> nic_links_of(const Router& router, std::int32_t device) {
  const Cluster& cluster = router.cluster();
  if (cluster.nodes <= cluster.nodes_per_nvlink_domain) return {};
  const std::int32_t at = device / cluster.node.gpus, far = far_device(cluster, device);
  const auto wanted = [&](const LinkPlace& place) {
    return place.kind == LinkPlace::Kind::kNicCable && place.node == at;
  };
  std::vector<NarrowedLink> links;
  add_wanted(router, router.path(device, far), at, wanted, links);
  add_wanted(router, router.path(far, device), at, wanted, links);
  return links;
}

}  // namespace orrery::folding

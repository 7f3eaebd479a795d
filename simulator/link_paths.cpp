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
    if (!known && wanted(router.place(link.link))) links.push_back({link.link, node, link.bytes_per_s});
  }
}

// Unless it stands in `links` from `begin` on.
void add_once(const PathLink& link, std::size_t begin, std::vector<PathLink>& links) {
  const bool there = std::any_of(links.begin() + static_cast<std::ptrdiff_t>(begin), links.end(),
                                 [&](const PathLink& other) { return other.link == link.link; });
  if (!there) links.push_back(link);
}

}  // namespace

LinkPaths::LinkPaths(const Router& router, std::vector<NarrowedLink> narrowed, Rerouting rerouting)
    : router_(router), narrowed_(std::move(narrowed)), rerouting_(std::move(rerouting)) {
  for (const NarrowedLink& one : narrowed_) by_node_.emplace_back(one.node, one.link);
  std::ranges::sort(by_node_);
}

double LinkPaths::append_binding(std::int32_t from_device, std::int32_t to_device,
                                 std::vector<PathLink>& links) const {
  const std::int32_t domain = cluster().gpus_per_domain();
  if (from_device / domain == to_device / domain) return append_segment(from_device, to_device, links);
  const std::int32_t out = relay(from_device), in = relay(to_device);
  double latency_s = append_segment(out, in, links);
  if (out != from_device) latency_s += append_segment(from_device, out, links);
  if (in != to_device) latency_s += append_segment(in, to_device, links);
  return latency_s;
}

double LinkPaths::append_segment(std::int32_t from_device, std::int32_t to_device,
                                 std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  const double latency_s = router_.append_binding(from_device, to_device, links);
  const bool fabric = fabric_narrowed();
  if (fabric || touched(from_device) || touched(to_device)) {
    const Path path = router_.path(from_device, to_device);
    add_narrowed(path, node(from_device), begin, links);
    if (node(from_device) != node(to_device)) add_narrowed(path, node(to_device), begin, links);
    if (path.crosses_network && fabric) add_narrowed(path, -1, begin, links);
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
  const std::int32_t out = relay(device);
  append_segment_to_leaf(out, links);
  if (out != device) append_segment(device, out, links);
}

void LinkPaths::append_binding_from_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  const std::int32_t in = relay(device);
  append_segment_from_leaf(in, links);
  if (in != device) append_segment(in, device, links);
}

void LinkPaths::append_segment_to_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  router_.append_binding_to_leaf(device, links);
  if (touched(device))
    add_narrowed(router_.path(device, far_device(cluster(), device)), node(device), begin, links);
}

void LinkPaths::append_segment_from_leaf(std::int32_t device, std::vector<PathLink>& links) const {
  const std::size_t begin = links.size();
  router_.append_binding_from_leaf(device, links);
  if (touched(device))
    add_narrowed(router_.path(far_device(cluster(), device), device), node(device), begin, links);
}

bool LinkPaths::touched(std::int32_t device) const {
  const auto at =
      std::ranges::lower_bound(by_node_, node(device), {}, &decltype(by_node_)::value_type::first);
  return at != by_node_.end() && at->first == node(device);
}

bool LinkPaths::narrowed_at(LinkInstance link, std::int32_t node) const {
  return std::ranges::binary_search(by_node_, std::pair(node, link));
}

void LinkPaths::add_narrowed(const Path& path, std::int32_t node, std::size_t begin,
                             std::vector<PathLink>& links) const {
  for (const PathLink& link : path.links)
    if (narrowed_at(link.link, node)) add_once(link, begin, links);
}

std::vector<NarrowedLink> nvlinks_between(const Router& router, std::int32_t device, std::int32_t other) {
  const NodeType& node = router.cluster().node;
  const std::int32_t gpu = device % node.gpus, at = device / node.gpus;
  std::vector<NarrowedLink> links;
  const auto wanted = [&](const LinkPlace& place) {
    if (place.kind != LinkPlace::Kind::kInNode || place.node != at) return false;
    const NodeLink& link = node.links[static_cast<std::size_t>(place.index)];
    return link.kind == LinkKind::kNvLink && (link.a == gpu || link.b == gpu);
  };
  add_wanted(router, router.path(device, other), at, wanted, links);
  add_wanted(router, router.path(other, device), at, wanted, links);
  return links;
}

std::vector<NarrowedLink> nvlinks_of(const Router& router, std::int32_t device) {
  const std::int32_t gpus = router.cluster().node.gpus, first = device / gpus * gpus;
  std::vector<NarrowedLink> links;
  for (std::int32_t other = first; other < first + gpus; ++other) {
    if (other == device) continue;
    for (const NarrowedLink& link : nvlinks_between(router, device, other)) {
      const bool known =
          std::ranges::any_of(links, [&](const NarrowedLink& one) { return one.link == link.link; });
      if (!known) links.push_back(link);
    }
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

// The first cable between switches on the way out, the last one on the way back.
std::vector<NarrowedLink> uplinks_of(const Router& router, std::int32_t device) {
  const Cluster& cluster = router.cluster();
  std::vector<NarrowedLink> links;
  const std::int32_t domain = cluster.gpus_per_domain();
  if (cluster.gpu_count() <= domain) return links;
  const auto trunk = [&](const PathLink& link) {
    return router.place(link.link).kind == LinkPlace::Kind::kTrunk;
  };
  const auto add = [&](const PathLink& link) {
    const bool known =
        std::ranges::any_of(links, [&](const NarrowedLink& other) { return other.link == link.link; });
    if (!known) links.push_back({link.link, -1, link.bytes_per_s});
  };
  for (std::int32_t other = 0; other < cluster.gpu_count(); ++other) {
    if (other / domain == device / domain) continue;
    const Path out = router.path(device, other), back = router.path(other, device);
    if (const auto first = std::ranges::find_if(out.links, trunk); first != out.links.end()) add(*first);
    const auto last = std::find_if(back.links.rbegin(), back.links.rend(), trunk);
    if (last != back.links.rend()) add(*last);
  }
  return links;
}

}  // namespace orrery::folding

#include "simulator/transfer_links.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace orrery::folding {

LinkCounter::LinkCounter(const LinkPaths& router)
    : number_of_(static_cast<std::size_t>(router.link_count()), -1) {}

void LinkCounter::add(std::span<const PathLink> path, std::int32_t count) {
  for (const PathLink& link : path) {
    std::int32_t& number = number_of_[static_cast<std::size_t>(link.link)];
    if (number < 0) {
      number = static_cast<std::int32_t>(capacity_.size());
      capacity_.push_back(std::llround(link.bytes_per_s));
      slot_of_.push_back(-1);
    }
    std::int32_t& slot = slot_of_[static_cast<std::size_t>(number)];
    if (slot < 0) {
      slot = static_cast<std::int32_t>(current_.size());
      current_.push_back({number, 0});
    }
    current_[static_cast<std::size_t>(slot)].count += count;
  }
}

std::int64_t LinkCounter::take(std::vector<LinkUse>& uses) {
  std::int64_t rate = current_.empty() ? 0 : std::numeric_limits<std::int64_t>::max();
  for (const LinkUse& use : current_) {
    rate = std::min(rate, capacity_[static_cast<std::size_t>(use.link)] / use.count);
    slot_of_[static_cast<std::size_t>(use.link)] = -1;
  }
  uses.insert(uses.end(), current_.begin(), current_.end());
  current_.clear();
  return rate;
}

Layout lay_out(std::vector<std::int32_t> devices, std::int32_t gpus_per_domain) {
  Layout group;
  std::ranges::sort(devices);
  group.devices = std::move(devices);
  std::int32_t fewest = std::numeric_limits<std::int32_t>::max();
  const auto size = static_cast<std::int32_t>(group.devices.size());
  for (std::int32_t begin = 0; begin < size;) {
    const auto node = [&](std::int32_t i) {
      return group.devices[static_cast<std::size_t>(i)] / gpus_per_domain;
    };
    std::int32_t end = begin + 1;
    while (end < size && node(end) == node(begin)) ++end;
    group.nodes.push_back({begin, end});
    fewest = std::min(fewest, end - begin);
    begin = end;
  }
  group.channels = group.nodes.size() > 1 ? fewest : 1;
  if (group.nodes.size() > 1)
    for (const Range node : group.nodes)
      for (std::int32_t channel = 0; channel < group.channels; ++channel)
        group.exits.push_back(node.begin + channel);
  return group;
}

namespace {

// Members of a node that leave it through different network cards: the first one of each. Into
// Layout::devices.
std::vector<std::int32_t> find_exits(const Layout& group, Range node, const LinkPaths& router) {
  std::vector<std::int32_t> found;
  const auto relay = [&](std::int32_t i) { return router.relay(group.devices[static_cast<std::size_t>(i)]); };
  for (std::int32_t i = node.begin; i < node.end; ++i)
    if (std::ranges::none_of(found, [&](std::int32_t other) { return relay(other) == relay(i); }))
      found.push_back(i);
  return found;
}

}  // namespace

void reroute(Layout& group, const LinkPaths& router) {
  if (!router.rerouted()) return;
  for (const Range node : group.nodes) {
    std::sort(group.devices.begin() + node.begin, group.devices.begin() + node.end,
              [&](std::int32_t a, std::int32_t b) {
                return std::pair(router.ring_position(a), a) < std::pair(router.ring_position(b), b);
              });
  }
  if (group.nodes.size() == 1) return;
  std::vector<std::vector<std::int32_t>> exits;
  for (const Range node : group.nodes) {
    exits.push_back(find_exits(group, node, router));
    group.channels = std::min(group.channels, static_cast<std::int32_t>(exits.back().size()));
  }
  group.exits.clear();
  for (const std::vector<std::int32_t>& of_node : exits)
    group.exits.insert(group.exits.end(), of_node.begin(), of_node.begin() + group.channels);
}

GroupShape Layout::shape(const NodeType& node) const {
  GroupShape shape{static_cast<std::int32_t>(devices.size()), static_cast<std::int32_t>(nodes.size()),
                   channels};
  std::vector<std::int32_t> gpus;  // The first node speaks for all.
  for (std::int32_t i = nodes.front().begin; i < nodes.front().end; ++i)
    gpus.push_back(devices[static_cast<std::size_t>(i)] % node.gpus);
  shape.nvlink_bytes_per_s = nvlink_rate(node, gpus);
  return shape;
}

std::vector<RingUse> ring_uses(const Layout& group) {
  std::vector<RingUse> uses;
  const auto add = [&](std::int32_t from, std::int32_t to, std::int32_t count) {
    uses.push_back(
        {group.devices[static_cast<std::size_t>(from)], group.devices[static_cast<std::size_t>(to)], count});
  };
  const bool one_node = group.nodes.size() == 1;
  for (std::size_t n = 0; n < group.nodes.size(); ++n) {
    const Range here = group.nodes[n];
    // Where a node has more members than channels, its links may have to carry all of them.
    const std::int32_t count = one_node                        ? 1
                               : here.size() == group.channels ? group.channels - 1
                                                               : group.channels;
    if (here.size() > 1 && count > 0)
      for (std::int32_t i = here.begin; i < here.end; ++i)
        add(i, i + 1 < here.end ? i + 1 : here.begin, count);
    if (one_node) return uses;
    const auto channels = static_cast<std::size_t>(group.channels);
    const std::size_t next = (n + 1) % group.nodes.size();
    for (std::size_t channel = 0; channel < channels; ++channel)
      add(group.exits[n * channels + channel], group.exits[next * channels + channel], 1);
  }
  return uses;
}

void add_ring(const Layout& group, const LinkPaths& router, LinkCounter& counter) {
  std::vector<PathLink> path;
  for (const RingUse& use : ring_uses(group)) {
    path.clear();
    router.append_binding(use.from, use.to, path);
    counter.add(path, use.count);
  }
}

namespace {

// Messages from one leaf switch to another: of each member to every member that isn't on its own node.
void add_between_leaves(const Layout& group, const LinkPaths& router, LinkCounter& counter) {
  std::map<std::int32_t, std::int32_t> under;  // Members by leaf switch.
  for (const std::int32_t device : group.devices) ++under[router.leaf(device)];
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> inside;  // Pairs that share a node.
  for (const Range node : group.nodes) {
    std::map<std::int32_t, std::int32_t> here;
    for (std::int32_t i = node.begin; i < node.end; ++i)
      ++here[router.leaf(group.devices[static_cast<std::size_t>(i)])];
    for (const auto& [a, from] : here)
      for (const auto& [b, to] : here) inside[{a, b}] += from * to;
  }
  std::vector<PathLink> path;
  for (const auto& [a, from] : under)
    for (const auto& [b, to] : under) {
      path.clear();
      router.append_binding_between_leaves(a, b, path);
      if (path.empty()) continue;
      const auto same_node = inside.find({a, b});
      const std::int32_t messages = from * to - (same_node == inside.end() ? 0 : same_node->second);
      if (messages > 0) counter.add(path, messages);
    }
}

// Where the way of a message depends on both of its ends.
void add_pairs(const Layout& group, const LinkPaths& router, LinkCounter& counter) {
  std::vector<PathLink> path;
  for (const std::int32_t from : group.devices)
    for (const std::int32_t to : group.devices) {
      if (from == to) continue;
      path.clear();
      router.append_binding(from, to, path);
      counter.add(path, 1);
    }
}

}  // namespace

void add_all_to_all(const Layout& group, const LinkPaths& router, LinkCounter& counter) {
  if (group.nodes.size() > 1 && !router.parts_join()) {
    add_pairs(group, router, counter);
    return;
  }
  const auto size = static_cast<std::int32_t>(group.devices.size());
  std::vector<PathLink> path;
  for (const Range node : group.nodes) {
    for (std::int32_t a = node.begin; a < node.end; ++a) {
      const std::int32_t from = group.devices[static_cast<std::size_t>(a)];
      for (std::int32_t b = node.begin; b < node.end; ++b) {
        if (a == b) continue;
        path.clear();
        router.append_binding(from, group.devices[static_cast<std::size_t>(b)], path);
        counter.add(path, 1);
      }
      if (group.nodes.size() == 1) continue;
      path.clear();
      router.append_binding_to_leaf(from, path);
      router.append_binding_from_leaf(from, path);
      counter.add(path, size - node.size());
    }
  }
  if (group.nodes.size() > 1) add_between_leaves(group, router, counter);
}

}  // namespace orrery::folding

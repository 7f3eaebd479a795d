#include "planner/placement_cost.hpp"

#include <algorithm>
#include <map>

#include "simulator/transfer_links.hpp"

namespace orrery {
namespace {

struct Way {
  bool nvlink = true, numa = false, network = false, leaf = false;
  double seconds_per_byte = 0;  // Summed over its links.
};

Way look_at(const PlacementMachine& machine, const Path& path) {
  Way way;
  for (const PathLink& link : path.links) {
    const LinkKind kind = link_kind(machine.router(), link.link);
    way.nvlink = way.nvlink && kind == LinkKind::kNvLink;
    way.numa = way.numa || kind == LinkKind::kCpuInterconnect;
    way.network = way.network || kind == LinkKind::kNetwork;
    way.seconds_per_byte += 1 / link.bytes_per_s;
  }
  return way;
}

class Counter {
 public:
  explicit Counter(const PlacementMachine& machine) : machine_(machine) {}

  void add_flow(const Flow& flow) {
    Way way = look_at(machine_, machine_.router().path(flow.from, flow.to));
    way.leaf = way.network && machine_.router().leaf(flow.from) != machine_.router().leaf(flow.to);
    add(way, flow.bytes);
  }

  void add_copy(std::int32_t device, bool to_host, double bytes) {
    if (bytes == 0) return;
    add(look_at(machine_, machine_.router().host_path(device, to_host)), bytes);
    cost_.crossing.host += bytes;
  }

  PlacementCost take() { return std::move(cost_); }

 private:
  void add(const Way& way, double bytes) {
    CrossingBytes& crossing = cost_.crossing;
    crossing.bytes += bytes;
    if (way.nvlink) crossing.nvlink += bytes;
    if (way.numa) crossing.numa += bytes;
    if (way.network) crossing.network += bytes;
    if (way.leaf) crossing.leaf += bytes;
    cost_.link_seconds += bytes * way.seconds_per_byte;
  }

  const PlacementMachine& machine_;
  PlacementCost cost_;
};

// Pairs of members on one node, node by node, so that large groups don't cost the square of their size.
AxisSpread spread(const Axis& axis, const PlacementMachine& machine,
                  const std::vector<std::int32_t>& device_of) {
  AxisSpread result;
  result.axis = axis.name;
  double hops = 0;
  for (const std::vector<RankId>& group : axis.groups) {
    if (group.size() < 2) continue;
    ++result.groups;
    result.size = std::max(result.size, static_cast<std::int32_t>(group.size()));
    std::map<std::int32_t, std::vector<std::int32_t>> by_node;
    for (const RankId rank : group)
      by_node[machine.node(device_of[rank.index()])].push_back(device_of[rank.index()]);
    result.over_nodes += by_node.size() > 1;
    result.most_nodes = std::max(result.most_nodes, static_cast<std::int32_t>(by_node.size()));
    for (const auto& [node, devices] : by_node) {
      for (std::size_t i = 0; i < devices.size(); ++i) {
        for (std::size_t j = i + 1; j < devices.size(); ++j) {
          const std::int32_t apart = machine.pcie_hops(devices[i], devices[j]);
          hops += apart;
          result.largest_hops = std::max(result.largest_hops, apart);
          ++result.pairs;
        }
      }
    }
  }
  if (result.pairs > 0) result.mean_hops = hops / result.pairs;
  return result;
}

}  // namespace

void for_each_flow(const GroupTraffic& group, const std::vector<std::int32_t>& device_of,
                   std::int32_t gpus_per_node, const std::function<void(const Flow&)>& use) {
  std::vector<std::int32_t> devices;
  for (const RankId rank : group.ranks) devices.push_back(device_of[rank.index()]);
  if (group.pair_bytes > 0) {
    for (const std::int32_t from : devices) {
      for (const std::int32_t to : devices) {
        if (from != to) use({from, to, group.pair_bytes});
      }
    }
  }
  if (group.ring_bytes <= 0) return;
  const folding::Layout layout = folding::lay_out(std::move(devices), gpus_per_node);
  for (const folding::RingUse& ring : folding::ring_uses(layout)) {
    use({ring.from, ring.to, group.ring_bytes * ring.count / layout.channels});
  }
}

PlacementCost placement_cost(const RankTraffic& traffic, const PlacementMachine& machine,
                             const std::vector<std::int32_t>& device_of) {
  Counter counter(machine);
  std::vector<double> axis_bytes(traffic.axes.size(), 0.0);
  for (const GroupTraffic& group : traffic.groups) {
    for_each_flow(group, device_of, machine.cluster().node.gpus, [&](const Flow& flow) {
      counter.add_flow(flow);
      axis_bytes[group.axis.index()] += flow.bytes;
    });
  }
  for (const PairTraffic& pair : traffic.pairs) {
    counter.add_flow({device_of[pair.from.index()], device_of[pair.to.index()], pair.bytes});
    axis_bytes[pair.axis.index()] += pair.bytes;
  }
  for (const HostTraffic& copy : traffic.copies) {
    counter.add_copy(device_of[copy.rank.index()], true, copy.to_host_bytes);
    counter.add_copy(device_of[copy.rank.index()], false, copy.from_host_bytes);
  }
  PlacementCost cost = counter.take();
  for (std::size_t a = 0; a < traffic.axes.size(); ++a) {
    if (axis_bytes[a] <= 0) continue;
    cost.axes.push_back(spread(traffic.axes[a], machine, device_of));
    cost.axes.back().bytes = axis_bytes[a];
  }
  return cost;
}

}  // namespace orrery

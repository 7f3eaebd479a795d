#include "planner/route_around.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "simulator/job_faults.hpp"
#include "topology/ring_order.hpp"

namespace orrery {
namespace {

using Factors = std::map<LinkInstance, double>;  // Of links that have less than their full rate.

Factors link_factors(const Router& router, std::span<const Fault> faults) {
  Factors factors;
  for (const Fault& fault : faults) {
    if (fault.what == Fault::What::kGpu) continue;
    const std::int32_t peer = fault.peer.valid() ? fault.peer.value : -1;
    for (const folding::NarrowedLink& link : folding::links_of(router, fault, fault.rank.value, peer))
      factors.try_emplace(link.link, 1.0).first->second *= fault.factor;
  }
  return factors;
}

double least(const Factors& factors, const std::vector<folding::NarrowedLink>& links) {
  double factor = 1;
  for (const folding::NarrowedLink& link : links) {
    const auto found = factors.find(link.link);
    if (found != factors.end()) factor = std::min(factor, found->second);
  }
  return factor;
}

// Whose own compute is lost can't pass anything on.
std::set<std::int32_t> lost_devices(const Cluster& cluster, std::span<const Fault> faults) {
  std::set<std::int32_t> lost;
  for (const Fault& fault : faults) {
    if (fault.factor > 0) continue;
    const std::int32_t gpus = cluster.node.gpus, first = fault.rank.value / gpus * gpus;
    if (fault.what == Fault::What::kGpu) lost.insert(fault.rank.value);
    if (fault.what == Fault::What::kNode)
      for (std::int32_t gpu = first; gpu < first + gpus; ++gpu) lost.insert(gpu);
  }
  return lost;
}

// The network cards of one node's GPUs.
class Cards {
 public:
  Cards(const Router& router, const Factors& factors, std::int32_t first)
      : router_(router), first_(first), gpus_(router.cluster().node.gpus) {
    for (std::int32_t gpu = first; gpu < first + gpus_; ++gpu) {
      const auto cable = folding::nic_links_of(router, gpu);
      card_.push_back(cable.empty() ? -1 : cable.front().link);
      factor_.push_back(std::min(least(factors, cable), least(factors, folding::uplinks_of(router, gpu))));
      ++users_[card_.back()];
    }
  }

  double factor(std::int32_t gpu) const { return factor_[static_cast<std::size_t>(gpu - first_)]; }

  // Itself when nobody's card would leave it more.
  std::int32_t relay_for(std::int32_t gpu, const std::set<std::int32_t>& lost) {
    const auto better = [&](std::int32_t other) {
      const Path path = router_.path(gpu, other);
      return std::tuple(share(other, 1), path.bytes_per_s(), -path.latency_s, -std::abs(gpu - other), -other);
    };
    std::int32_t best = -1;
    for (std::int32_t other = first_; other < first_ + gpus_; ++other) {
      if (other == gpu || lost.contains(other) || card(other) == card(gpu)) continue;
      if (best < 0 || better(other) > better(best)) best = other;
    }
    if (best < 0 || share(best, 1) <= share(gpu, 0)) return gpu;
    --users_[card(gpu)];
    ++users_[card(best)];
    return best;
  }

 private:
  LinkInstance card(std::int32_t gpu) const { return card_[static_cast<std::size_t>(gpu - first_)]; }
  double share(std::int32_t gpu, std::int32_t more) const {
    return factor(gpu) / std::max(1, users_.at(card(gpu)) + more);
  }

  const Router& router_;
  const std::int32_t first_, gpus_;
  std::vector<LinkInstance> card_;
  std::vector<double> factor_;
  std::map<LinkInstance, std::int32_t> users_;
};

// The best ring over a node whose cables are as the factors say; empty where the usual order is as good.
RingOrder ring_around(const Router& router, const Factors& factors, std::int32_t node_number) {
  NodeType node = router.cluster().node;
  const auto is_switch = [](const NodeDevice& device) { return device.kind == DeviceKind::kNvSwitch; };
  if (node.gpus < 3 || std::ranges::any_of(node.devices, is_switch)) return {};
  bool narrowed = false;
  for (const auto& [instance, factor] : factors) {
    const LinkPlace place = router.place(instance);
    if (place.kind != LinkPlace::Kind::kInNode || place.node != node_number) continue;
    NodeLink& link = node.links[static_cast<std::size_t>(place.index)];
    if (link.kind != LinkKind::kNvLink) continue;
    // Both directions are in the factors; what is lost keeps a byte per second, since costs divide by rates.
    if (place.forward) link.bytes_per_s = std::max(1.0, factor * link.bytes_per_s);
    narrowed = true;
  }
  if (!narrowed) return {};
  RingOrder usual(static_cast<std::size_t>(node.gpus));
  std::iota(usual.begin(), usual.end(), 0);
  const NodeRoutes routes = find_routes(node);
  const BestRing best = best_ring(node, routes, usual);
  return best.bytes_per_s > ring_cost(node, routes, {&usual, 1}).bytes_per_s ? best.order : RingOrder{};
}

}  // namespace

Rerouting route_around(const Router& router, std::span<const Fault> faults) {
  const Cluster& cluster = router.cluster();
  const std::int32_t gpus = cluster.node.gpus;
  const auto devices = static_cast<std::size_t>(cluster.gpu_count());
  const Factors factors = link_factors(router, faults);
  if (factors.empty()) return {};
  const std::set<std::int32_t> lost = lost_devices(cluster, faults);
  Rerouting found;
  found.relay.resize(devices);
  std::iota(found.relay.begin(), found.relay.end(), 0);
  for (std::size_t device = 0; device < devices; ++device)
    found.ring_position.push_back(static_cast<std::int32_t>(device) % gpus);
  const Rerouting usual = found;
  for (std::int32_t node = 0; node < cluster.nodes; ++node) {
    const std::int32_t first = node * gpus;
    if (cluster.nodes > 1) {
      Cards cards(router, factors, first);
      for (std::int32_t gpu = first; gpu < first + gpus; ++gpu)
        if (cards.factor(gpu) < 1) found.relay[static_cast<std::size_t>(gpu)] = cards.relay_for(gpu, lost);
    }
    const RingOrder order = ring_around(router, factors, node);
    for (std::size_t place = 0; place < order.size(); ++place)
      found.ring_position[static_cast<std::size_t>(first + order[place])] = static_cast<std::int32_t>(place);
  }
  if (found.relay == usual.relay) found.relay.clear();
  if (found.ring_position == usual.ring_position) found.ring_position.clear();
  return found;
}

}  // namespace orrery

#include "simulator/collective_cost.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <optional>

namespace orrery {
namespace {

int ceil_log2(std::int32_t n) { return n <= 1 ? 0 : std::bit_width(static_cast<std::uint32_t>(n - 1)); }

struct Steps {
  int inside = 0, between = 0;

  int all() const { return inside + between; }
  double seconds(const Profile& profile) const {
    return inside * profile.step_latency_s + between * profile.network_step_latency_s;
  }
};

Steps ring_steps(CollectiveKind kind, const GroupShape& shape) {
  const int times = kind == CollectiveKind::kAllReduce ? 2 : 1;
  return {times * (shape.ranks - shape.nodes), times * (shape.nodes - 1)};
}

Steps tree_steps(const GroupShape& shape) {
  const int between = ceil_log2(shape.nodes);
  return {2 * (ceil_log2(shape.ranks) - between), 2 * between};
}

TransferCost ideal_cost(CollectiveKind kind, double payload, const GroupShape& shape, double rate,
                        const Profile& profile) {
  const auto cost = [&](const Steps& steps, double share) {
    return TransferCost{profile.collective_base_s + steps.seconds(profile),
                        std::llround(std::ceil(share * payload / shape.channels)), rate};
  };
  const TransferCost ring = cost(ring_steps(kind, shape), ring_share(kind, shape.ranks));
  if (kind != CollectiveKind::kAllReduce) return ring;
  const TransferCost tree = cost(tree_steps(shape), 2);
  return tree.seconds() < ring.seconds() ? tree : ring;
}

double ramp(double channel_bytes, const CollectiveCosts& costs) {
  const double halvings = std::log2(costs.full_channel_bytes / std::max(channel_bytes, 1.0));
  return 1 + costs.ramp * std::clamp(halvings, 0.0, costs.ramp_halvings);
}

double all_to_all_factor(double payload, const CollectiveCosts& costs) {
  constexpr double kChannels =
      12;  // Messages have their own: as many everywhere as where they were measured.
  return costs.slowdown * costs.all_to_all_slowdown * ramp(payload / kChannels, costs);
}

TransferCost all_to_all_cost(double payload, const GroupShape& shape, double rate, const Profile& profile) {
  // NCCL runs the messages of up to eight peers at a time. Hardware latencies of its Simple protocol.
  constexpr double kNvLink = 3.4e-6, kPcie = 5.7e-6, kNetwork = 14e-6;
  const int batches = (shape.ranks - 1 + 7) / 8;
  const double hop = shape.nvlink_bytes_per_s > 0 ? kNvLink : kPcie;
  TransferCost cost;
  cost.latency_s = profile.collective_base_s + (batches - 1) * hop + (shape.nodes > 1 ? kNetwork : 0) +
                   ring_steps(CollectiveKind::kAllToAll, shape).seconds(profile);
  cost.bytes = std::llround(std::ceil(ring_share(CollectiveKind::kAllToAll, shape.ranks) * payload));
  cost.bytes_per_s = rate / all_to_all_factor(payload, profile.collectives);
  return cost;
}

// Inside a node since NCCL 2.17, between nodes (NVLSTree) since 2.18 (its release notes).
bool has_nvls(const GroupShape& shape, const CollectiveCosts& costs) {
  return costs.nvls && costs.nccl_minor >= (shape.nodes == 1 ? 17 : 18);
}

// Of the payload, what an algorithm sends through a GPU's link inside a node, or through all NICs of a node
// together in one direction.
double link_share(CollectiveKind kind, nccl::Algorithm algorithm, const GroupShape& shape) {
  switch (algorithm) {
    case nccl::Algorithm::kRing: return ring_share(kind, shape.ranks);
    // Up once and down once, in both directions of a link; between more than two nodes an inner node of one
    // tree, a leaf of the other, sends up and down to two: (3 + 1) / 2.
    case nccl::Algorithm::kTree:
    case nccl::Algorithm::kNvlsTree: return shape.nodes > 2 ? 2 : 1;
    // To the switch; an all-reduce also multicasts the part that it reduced.
    case nccl::Algorithm::kNvls: return kind == CollectiveKind::kAllReduce ? 1 + 1.0 / shape.ranks : 1;
    // The network reduces: everything once.
    case nccl::Algorithm::kCollNetDirect:
    case nccl::Algorithm::kCollNetChain: return 1;
    case nccl::Algorithm::kPat: return ring_share(kind, shape.ranks);
  }
  return 1;
}

double ends(CollectiveKind kind, const CollectiveCosts& costs) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return costs.all_reduce_ends;
    case CollectiveKind::kAllGather: return costs.gather_ends;
    case CollectiveKind::kReduceScatter: return costs.scatter_ends;
    default: return 0;
  }
}

TransferCost nccl_cost(CollectiveKind kind, std::int64_t bytes, const GroupShape& shape,
                       const CollectiveMachine& machine, double rate, const Profile& profile) {
  const CollectiveCosts& costs = profile.collectives;
  const auto payload = static_cast<double>(bytes);
  const nccl::Communicator comm = nccl_communicator(shape, machine, rate, profile);
  const nccl::Choice choice = nccl::choose(kind, bytes, comm);
  const bool ring = choice.algorithm == nccl::Algorithm::kRing;
  const Steps steps = ring ? ring_steps(kind, shape) : tree_steps(shape);
  double move_s = payload / (choice.price.gb_per_s * 1e9);
  move_s *= move_factor(kind, payload, choice.algorithm, choice.protocol, comm, costs);
  TransferCost cost;
  cost.latency_s = costs.call_s + choice.price.latency_us * 1e-6 + steps.seconds(profile);
  double link_bytes = link_share(kind, choice.algorithm, shape) * payload / shape.channels;
  // Where GPUs are joined pair by pair, NCCL's channels also take the ways round: a link carries its part.
  if (shape.nodes == 1 && shape.nvlink_bytes_per_s > rate) link_bytes *= rate / shape.nvlink_bytes_per_s;
  cost.bytes = std::llround(std::ceil(link_bytes));
  cost.bytes_per_s = move_s > 0 ? std::min(rate, link_bytes / move_s) : rate;
  return cost;
}

// The fit for a group of that size; nothing where no group of any size was measured.
std::optional<CollectiveFit> fit_of(CollectiveKind kind, std::int32_t ranks, const Profile& profile) {
  const CollectiveFit *below = nullptr, *above = nullptr;
  for (const CollectiveFit& fit : profile.collective_fits) {
    if (fit.kind != to_string(kind)) continue;
    if (fit.ranks <= ranks && (below == nullptr || fit.ranks > below->ranks)) below = &fit;
    if (fit.ranks >= ranks && (above == nullptr || fit.ranks < above->ranks)) above = &fit;
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr || above == nullptr) return below == nullptr ? *above : *below;
  if (below->ranks == above->ranks) return *below;
  const double t = static_cast<double>(ranks - below->ranks) / (above->ranks - below->ranks);
  CollectiveFit between = *below;
  between.ranks = ranks;
  between.base_s = std::lerp(below->base_s, above->base_s, t);
  between.seconds_per_byte = std::lerp(below->seconds_per_byte, above->seconds_per_byte, t);
  return between;
}

TransferCost fitted_cost(CollectiveKind kind, double payload, const GroupShape& shape,
                         const CollectiveFit& fit) {
  TransferCost cost{fit.base_s, 0, 0, true};
  const double move_s = payload * fit.seconds_per_byte;
  if (move_s <= 0) return cost;
  cost.bytes = std::llround(std::ceil(ring_share(kind, shape.ranks) * payload / shape.channels));
  cost.bytes_per_s = static_cast<double>(cost.bytes) / move_s;
  return cost;
}

}  // namespace

double move_factor(CollectiveKind kind, double payload, nccl::Algorithm algorithm, nccl::Protocol protocol,
                   const nccl::Communicator& comm, const CollectiveCosts& costs) {
  if (kind == CollectiveKind::kAllToAll) return all_to_all_factor(payload, costs);
  double factor = costs.slowdown;
  if (protocol == nccl::Protocol::kLl) return factor;
  factor *= ramp(payload / comm.ring.channels, costs);
  const int steps = (kind == CollectiveKind::kAllReduce ? 2 : 1) * (comm.ranks - 1);
  if (algorithm == nccl::Algorithm::kRing) factor *= 1 + ends(kind, costs) / steps;
  return factor;
}

nccl::Communicator nccl_communicator(const GroupShape& shape, const CollectiveMachine& machine, double rate,
                                     const Profile& profile) {
  nccl::GroupLinks links;
  links.ranks = shape.ranks;
  links.nodes = shape.nodes;
  links.generation = machine.generation;
  links.nvlink = shape.nvlink_bytes_per_s > 0;
  links.multicast = machine.has_multicast() && links.nvlink && has_nvls(shape, profile.collectives);
  // Channels side by side share a GPU's PCIe link; `rate` is what one of them has of it.
  links.node_gb_per_s = (links.nvlink ? shape.nvlink_bytes_per_s : rate * shape.channels) / 1e9;
  links.nics = std::min(shape.channels, machine.nics);
  links.nic_gb_per_s = machine.nic_bytes_per_s / 1e9;
  return nccl::find_channels(links);
}

double ring_share(CollectiveKind kind, double n) {
  switch (kind) {
    case CollectiveKind::kAllReduce: return 2 * (n - 1) / n;
    case CollectiveKind::kBroadcast: return 1;
    default: return (n - 1) / n;
  }
}

TransferCost collective_cost(CollectiveKind kind, std::int64_t bytes, const GroupShape& shape,
                             const CollectiveMachine& machine, double rate, const Profile& profile) {
  assert(shape.ranks >= shape.nodes && shape.nodes >= 1 && shape.channels >= 1);
  if (shape.ranks <= 1) return {};
  const auto payload = static_cast<double>(bytes);
  if (shape.nodes == 1)
    if (const auto fit = fit_of(kind, shape.ranks, profile)) return fitted_cost(kind, payload, shape, *fit);
  if (!profile.collectives.nccl) return ideal_cost(kind, payload, shape, rate, profile);
  if (kind == CollectiveKind::kAllToAll) return all_to_all_cost(payload, shape, rate, profile);
  return nccl_cost(kind, bytes, shape, machine, rate, profile);
}

CostError collective_error(const TransferCost& cost, bool one_node, const Profile& profile) {
  const CollectiveCosts& costs = profile.collectives;
  const CostError& latency = one_node ? costs.node_latency : costs.network_latency;
  const CostError& bandwidth = one_node ? costs.node_bandwidth : costs.network_bandwidth;
  const double fixed = cost.seconds() > 0 ? cost.latency_s / cost.seconds() : 1;
  const auto both = [&](double of_latency, double of_bandwidth) {
    return std::hypot(fixed * of_latency, (1 - fixed) * of_bandwidth);
  };
  return {both(latency.family_sigma, bandwidth.family_sigma),
          both(latency.entry_sigma, bandwidth.entry_sigma)};
}

}  // namespace orrery

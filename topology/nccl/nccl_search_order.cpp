// In which order the search tries GPUs and ports.

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "topology/nccl/nccl_paths.hpp"
#include "topology/nccl/nccl_search_walk.hpp"

namespace orrery::nccl {
namespace {

// Of one GPU: the ports that its channels rotate over.
std::vector<std::int32_t> own_ports(const System& system, std::int32_t gpu) {
  constexpr std::int32_t kMostChannels = 64;
  std::vector<std::int32_t> ports;
  for (std::int32_t channel = 0; channel < kMostChannels; ++channel) {
    const std::int32_t port = local_port(system, gpu, channel);
    if (!ports.empty() && port == ports.front()) break;
    ports.push_back(port);
  }
  return ports;
}

}  // namespace

int Walk::pci_gb_per_s(std::int32_t gpu) const {
  for (const std::int32_t l : system_.nodes[static_cast<std::size_t>(gpu_node(gpu))].links) {
    const auto link = static_cast<std::size_t>(l);
    if (system_.links[link].kind == LinkClass::kPci && back_[link] >= 0)
      return static_cast<int>(std::min(left_[link], left_[static_cast<std::size_t>(back_[link])]));
  }
  return -1;
}

// Behind a switch all are equally near, and few peers are better than many: neighbours by index only.
std::vector<std::int32_t> Walk::neighbours(std::int32_t gpu) const {
  const std::uint64_t flag = std::uint64_t{1} << now_->channels;
  const std::int32_t before = (gpu - 1 + gpus_) % gpus_, after = (gpu + 1) % gpus_;
  std::array<std::int32_t, 2> wanted{after, before};
  if (now_->pattern == Pattern::kRing) wanted = {before, after};
  const bool both = before != after && now_->pattern != Pattern::kTree;
  std::vector<std::int32_t> next;
  for (std::size_t i = 0; i < (both ? 2U : 1U); ++i) {
    const std::int32_t other = both ? wanted[i] : after;
    if ((used_[static_cast<std::size_t>(other)] & flag) == 0 &&
        !system_.path(gpu_node(gpu), gpu_node(other)).links.empty())
      next.push_back(other);
  }
  return next;
}

// `network`: 1 when the next GPU must reach the network, −1 when a later one must, 0 when none.
std::vector<std::int32_t> Walk::next_gpus(std::int32_t gpu, int network) const {
  if (!old_ && !system_.all(NodeKind::kNvs).empty()) return neighbours(gpu);
  const std::uint64_t flag = std::uint64_t{1} << now_->channels;
  const std::int32_t entry = now_->ports[static_cast<std::size_t>(now_->channels * 2)];
  using Score = std::tuple<int, int, int, int, int, int, std::int32_t>;  // Smaller is better; then the GPU.
  std::vector<Score> scores;
  scores.reserve(static_cast<std::size_t>(gpus_));
  for (std::int32_t i = 1; i < gpus_; ++i) {
    const std::int32_t other = (gpu + i) % gpus_;
    const SystemPath& path = system_.path(gpu_node(gpu), gpu_node(other));
    if (path.links.empty() || (used_[static_cast<std::size_t>(other)] & flag) != 0) continue;
    int rate = 0, pcie = 0, hops = 0;
    if (network != 0) {
      const SystemPath& from_port = system_.path(port_node(entry), gpu_node(other));
      rate = static_cast<int>(from_port.gb_per_s);
      pcie = pci_gb_per_s(other);
      hops = static_cast<int>(from_port.links.size());
    }
    scores.emplace_back(-rate, -pcie, hops, -static_cast<int>(path.gb_per_s),
                        static_cast<int>(path.links.size()), i, other);
  }
  std::ranges::sort(scores);
  const bool alike = std::ranges::all_of(scores, [&](const Score& score) {
    return std::get<3>(score) == std::get<3>(scores.front()) &&
           std::get<4>(score) == std::get<4>(scores.front());
  });
  std::vector<std::int32_t> next;
  next.reserve(scores.size());
  for (const Score& score : scores) next.push_back(std::get<6>(score));
  if (network == -1 && alike) std::ranges::reverse(next);
  return next;
}

// First those that the GPUs call their own, then others of a class that is allowed.
const std::vector<std::int32_t>& Walk::ports_for(std::int32_t gpu) {
  const auto classes = static_cast<std::size_t>(PathClass::kDis) + 1;
  std::vector<std::int32_t>& ports =
      ports_for_[static_cast<std::size_t>(gpu + 1) * classes + static_cast<std::size_t>(now_->network_path)];
  if (!ports.empty()) return ports;
  const std::int32_t first = gpu < 0 ? 0 : gpu, last = gpu < 0 ? gpus_ : gpu + 1;
  if (old_) {
    old_ports_for(first, last, ports);
    return ports;
  }
  std::vector<std::vector<std::int32_t>> own;
  std::size_t rounds = 0;
  for (std::int32_t g = first; g < last; ++g) {
    own.push_back(own_ports(system_, g));
    rounds = std::max(rounds, own.back().size());
  }
  if (system_.hosts > 1) {  // Hosts that share NVLink: every GPU's first one before anybody's second.
    for (std::size_t round = 0; round < rounds; ++round)
      for (const auto& list : own)
        if (round < list.size()) add_new(ports, list[round]);
  } else {
    for (const auto& list : own)
      for (const std::int32_t port : list) add_new(ports, port);
  }
  std::size_t most = system_.all(NodeKind::kNet).size();
  if (system_.variables.net_policy == NetPolicy::kMax)
    most = std::min(most, static_cast<std::size_t>(system_.variables.net_policy_most) *
                              static_cast<std::size_t>(last - first));
  for (int type = 0; type <= static_cast<int>(now_->network_path); ++type)
    for (std::int32_t g = first; g < last; ++g)
      for (std::size_t p = 0; p < system_.all(NodeKind::kNet).size() && ports.size() < most; ++p)
        if (static_cast<int>(system_.path(gpu_node(g), port_node(static_cast<std::int32_t>(p))).type) == type)
          add_new(ports, static_cast<std::int32_t>(p));
  return ports;
}

// By class; within one, a GPU begins with another port than its neighbours.
void Walk::old_ports_for(std::int32_t first, std::int32_t last, std::vector<std::int32_t>& ports) const {
  const auto count = static_cast<std::int32_t>(system_.all(NodeKind::kNet).size());
  for (int type = 0; type <= static_cast<int>(now_->network_path); ++type)
    for (std::int32_t g = first; g < last; ++g) {
      std::vector<std::int32_t> near;
      for (std::int32_t p = 0; p < count; ++p)
        if (static_cast<int>(system_.path(gpu_node(g), port_node(p)).type) == type) near.push_back(p);
      if (near.empty()) continue;
      const auto turn = static_cast<std::size_t>(system_.gpu(g).device) % near.size();
      std::ranges::rotate(near, near.begin() + static_cast<std::ptrdiff_t>(turn));
      for (const std::int32_t port : near) add_new(ports, port);
    }
}

// Where a channel that comes from this port may begin, best first.
std::vector<std::int32_t> Walk::first_gpus(std::int32_t port) const {
  if (!old_) return first_[static_cast<std::size_t>(port)];
  const std::int32_t node = port_node(port);
  std::vector<std::int32_t> gpus;
  float most = 0;
  std::size_t hops = 0;
  for (const std::int32_t gpu : system_.all(NodeKind::kGpu)) {
    const SystemPath& path = system_.path(node, gpu);
    if (path.gb_per_s > most || (path.gb_per_s == most && path.links.size() < hops)) {
      most = path.gb_per_s;
      hops = path.links.size();
    }
  }
  if (most < std::trunc(now_->network_gb_per_s)) return gpus;
  // GPUs that already have a channel in the other direction last.
  for (const bool free : {true, false})
    for (std::int32_t gpu = 0; gpu < gpus_; ++gpu) {
      const SystemPath& path = system_.path(node, gpu_node(gpu));
      if (path.gb_per_s == most && path.links.size() == hops && (pci_gb_per_s(gpu) > 0) == free)
        gpus.push_back(gpu);
    }
  return gpus;
}

bool Walk::may_leave_by(std::int32_t port, std::int32_t step) const {
  const std::int32_t channel = now_->channels;
  const auto port_of = [&](std::int32_t c, std::int32_t end) {
    return now_->ports[static_cast<std::size_t>(c * 2 + end)];
  };
  const std::int32_t entry = port_of(channel, 0);
  const SystemNode& out = system_.nodes[static_cast<std::size_t>(port_node(port))];
  const SystemNode& in = system_.nodes[static_cast<std::size_t>(port_node(entry))];
  const bool same_card = card_[static_cast<std::size_t>(port)] == card_[static_cast<std::size_t>(entry)];
  if (out.plane >= 0 && in.plane >= 0 && out.plane != in.plane) return false;
  if (now_->pattern == Pattern::kTree && port != entry) return false;
  if (old_) {
    if (now_->cross_nic == 0 && !same_card) return false;
  } else if (now_->pattern == Pattern::kRing && now_->cross_nic == 2) {
    // Two channels are a pair: one leaves where the other enters.
    if (channel % 2 == 1 && port != port_of(channel - 1, 0)) return false;
  } else if (now_->cross_nic == 0) {
    const bool rails = out.rail >= 0 && in.rail >= 0;
    if (rails ? out.rail != in.rail : !same_card) return false;
  }
  return now_->pattern != Pattern::kBalancedTree || step == 0 || port == port_of(channel, 1);
}

}  // namespace orrery::nccl

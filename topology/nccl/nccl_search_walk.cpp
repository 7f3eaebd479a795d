#include "topology/nccl/nccl_search_walk.hpp"

#include <algorithm>
#include <cmath>

#include "topology/nccl/nccl_paths.hpp"

namespace orrery::nccl {
namespace {

// Sums of floats drift; NCCL rounds them to 1 MB/s.
float less(float rate, float speed) { return std::round((rate - speed) * 1000) / 1000; }

bool is_tree(Pattern pattern) {
  return pattern == Pattern::kBalancedTree || pattern == Pattern::kSplitTree || pattern == Pattern::kTree;
}
bool has_heads(Pattern pattern) { return pattern == Pattern::kNvls || pattern == Pattern::kCollNetDirect; }

}  // namespace

Walk::Walk(const System& system)
    : system_(system),
      old_(system.nccl_minor <= 18),
      gpus_(system.gpu_count()),
      back_(system.links.size(), -1),
      used_(static_cast<std::size_t>(gpus_), 0),
      ports_for_(static_cast<std::size_t>(gpus_ + 1) * (static_cast<std::size_t>(PathClass::kDis) + 1)) {
  for (const SystemLink& link : system.links) left_.push_back(link.gb_per_s);
  for (const std::int32_t port : system.all(NodeKind::kNet)) {
    const SystemNode& node = system.nodes[static_cast<std::size_t>(port)];
    port_left_.push_back(node.gb_per_s);
    const auto same = std::ranges::find_if(system.all(NodeKind::kNet), [&](std::int32_t other) {
      const SystemNode& it = system.nodes[static_cast<std::size_t>(other)];
      return it.card == node.card && it.port == node.port;
    });
    card_.push_back(static_cast<std::int32_t>(same - system.all(NodeKind::kNet).begin()));
    std::vector<std::int32_t>& gpus = first_.emplace_back();
    if (node.local_gpu >= 0) gpus.push_back(node.local_gpu);
    for (const std::int32_t gpu : nearest(system, port, NodeKind::kGpu)) add_new(gpus, gpu);
  }
  for (std::size_t l = 0; l < system.links.size(); ++l) {
    const SystemLink& link = system.links[l];
    for (const std::int32_t other : system.nodes[static_cast<std::size_t>(link.to)].links) {
      const SystemLink& candidate = system.links[static_cast<std::size_t>(other)];
      if (candidate.to == link.from && candidate.kind == link.kind) back_[l] = other;
    }
  }
}

std::int32_t Walk::run(Draft& setting, Draft& best, std::int32_t steps) {
  now_ = &setting;
  best_ = &best;
  setting.channels = 0;
  const auto rows = static_cast<std::size_t>(setting.most_channels);
  setting.gpus.resize(rows * static_cast<std::size_t>(gpus_), 0);
  setting.ports.resize(rows * 2, -1);
  next_channel(steps);
  return steps;
}

std::int32_t Walk::gpu_node(std::int32_t gpu) const {
  return system_.all(NodeKind::kGpu)[static_cast<std::size_t>(gpu)];
}
std::int32_t Walk::port_node(std::int32_t port) const {
  return system_.all(NodeKind::kNet)[static_cast<std::size_t>(port)];
}
std::int32_t& Walk::channel_gpu(std::int32_t step) {
  return now_->gpus[static_cast<std::size_t>(now_->channels * gpus_ + step)];
}
std::int32_t& Walk::channel_port(std::int32_t end) {
  return now_->ports[static_cast<std::size_t>(now_->channels * 2 + end)];
}
std::int32_t Walk::replayed(std::int32_t step) const {
  return now_->gpus[static_cast<std::size_t>((now_->channels - 1) * gpus_ + step)];
}

// ---- Bandwidth.

bool Walk::take_links(const SystemPath& path, std::int32_t from, std::size_t count, float speed,
                      std::size_t& reached) {
  const auto kind = [&](std::int32_t node) { return system_.nodes[static_cast<std::size_t>(node)].kind; };
  float pcie = speed;
  if (path.type == PathClass::kPhb && kind(from) == NodeKind::kGpu)
    for (const std::int32_t l : path.links) {
      const SystemNode& node =
          system_.nodes[static_cast<std::size_t>(system_.links[static_cast<std::size_t>(l)].to)];
      // Intel's root complex loses a sixth of what GPUs send each other through it.
      if (node.kind == NodeKind::kCpu && node.architecture == CpuArchitecture::kX86 &&
          node.vendor == CpuVendor::kIntel)
        pcie = speed * 6 / 5;
    }
  for (reached = 0; reached < count; ++reached) {
    const auto l = static_cast<std::size_t>(path.links[reached]);
    const SystemLink& link = system_.links[l];
    const SystemNode& to = system_.nodes[static_cast<std::size_t>(link.to)];
    const float forward = link.kind == LinkClass::kPci ? pcie : speed;
    float backward = 0;
    // Acknowledgements of GPUs before Ampere, and NVLinks into a POWER CPU.
    if (to.kind == NodeKind::kGpu && to.compute_capability < 80 && kind(from) != NodeKind::kGpu)
      backward += forward / 8;
    if (to.kind == NodeKind::kCpu && to.architecture == CpuArchitecture::kPower &&
        link.kind == LinkClass::kNvl)
      backward += forward;
    const std::int32_t back = back_[l];
    if (left_[l] < forward ||
        (backward != 0 && back >= 0 && left_[static_cast<std::size_t>(back)] < backward))
      return false;
    left_[l] = less(left_[l], forward);
    if (backward != 0 && back >= 0) {
      float& rate = left_[static_cast<std::size_t>(back)];
      rate = less(rate, backward);
    }
  }
  return true;
}

bool Walk::take(std::int32_t from, std::int32_t to, float times) {
  const auto inside = [&](std::int32_t node) {
    const NodeKind kind = system_.nodes[static_cast<std::size_t>(node)].kind;
    return kind == NodeKind::kGpu || kind == NodeKind::kNvs;
  };
  const bool node = inside(from) && inside(to);
  const PathClass most = node ? now_->node_path : now_->network_path;
  const SystemPath& path = system_.path(from, to);
  if (path.type >= PathClass::kDis) return false;
  if (times == 1) {
    if (path.type > most) return false;
    // What goes down a tree comes up again.
    if (is_tree(now_->pattern) && system_.path(to, from).type > most) return false;
  }
  const float speed = (node ? now_->node_gb_per_s : now_->network_gb_per_s) * times;
  std::size_t reached = 0;
  if (!take_links(path, from, path.links.size(), speed, reached)) {
    std::size_t undone = 0;
    take_links(path, from, reached, -speed, undone);
    return false;
  }
  now_->hops += times * static_cast<float>(path.links.size());
  return true;
}

void Walk::charge_card(std::int32_t port, float gb_per_s) {
  for (std::size_t p = 0; p < card_.size(); ++p)
    if (card_[p] == card_[static_cast<std::size_t>(port)]) port_left_[p] -= gb_per_s;
}

// ---- Depth first.

void Walk::next_channel(std::int32_t& steps) {
  const std::int32_t last = gpus_ - 1;
  Goal goal;
  if (system_.inter) {
    goal.network_at = now_->pattern == Pattern::kRing ? last : now_->pattern == Pattern::kSplitTree ? 1 : 0;
    from_ports(goal, steps);
    return;
  }
  if (now_->pattern == Pattern::kRing) goal.first_at = last;
  if (now_->pattern == Pattern::kNvls) {
    try_gpu(-1, now_->channels, 0, goal, Order::kFree, steps);
    return;
  }
  if (now_->channels == 0)
    try_gpu(-1, 0, 0, goal, Order::kPci, steps);
  else
    try_gpu(-1, replayed(0), 0, goal, Order::kReplay, steps);
  if (!now_->same_channels || now_->channels == 0)
    for (std::int32_t gpu = 0; gpu < gpus_; ++gpu) try_gpu(-1, gpu, 0, goal, Order::kFree, steps);
}

void Walk::from_ports(Goal goal, std::int32_t& steps) {
  const std::vector<std::int32_t>& ports = ports_for(-1);
  const auto count = static_cast<std::int32_t>(ports.size());
  const auto speed = std::trunc(now_->network_gb_per_s);  // Ports count in whole GB/s.
  bool found = false;
  for (std::int32_t i = 0; i < count; ++i) {
    if (has_heads(now_->pattern) && found) break;
    const std::int32_t first = old_ ? 0 : now_->channels;  // Channels begin at different ports since 2.19.
    const std::int32_t port = ports[static_cast<std::size_t>((first + i) % count)];
    const SystemNode& node = system_.nodes[static_cast<std::size_t>(port_node(port))];
    if (now_->collnet && !node.collnet) continue;
    if (port_left_[static_cast<std::size_t>(port)] < speed) continue;
    if (now_->pattern == Pattern::kRing && now_->cross_nic == 2 && now_->channels % 2 == 1 &&
        port != now_->ports[static_cast<std::size_t>((now_->channels - 1) * 2 + 1)])
      continue;
    channel_port(0) = port;
    now_->latency_us = node.latency_us;
    charge_card(port, speed);
    if (!has_heads(now_->pattern))
      from_port(port, goal, steps);
    else if (now_->channels < count)
      found = try_head(port, goal, steps) || found;
    charge_card(port, -speed);
  }
}

void Walk::from_port(std::int32_t port, Goal goal, std::int32_t& steps) {
  const std::int32_t node = port_node(port);
  if (now_->channels > 0 && (now_->same_channels || old_)) {
    try_gpu(node, replayed(0), 0, goal, Order::kReplay, steps);
    if (now_->same_channels) return;
  }
  if (now_->channels == 0 && (old_ || system_.all(NodeKind::kNvs).empty())) {
    // The plain order first, as a reference: it doesn't count, and may not take long.
    std::int32_t few = 1 << 10;
    try_gpu(node, 0, 0, goal, Order::kPci, few);
    if (few == Effort::kPerfect) steps = Effort::kPerfect;
  }
  for (const std::int32_t gpu : first_gpus(port)) try_gpu(node, gpu, 0, goal, Order::kFree, steps);
}

// One head per GPU, though it may have several ports. True: tried.
bool Walk::try_head(std::int32_t port, Goal goal, std::int32_t& steps) {
  const std::int32_t gpu = system_.nodes[static_cast<std::size_t>(port_node(port))].local_gpu;
  if (gpu < 0) return false;
  for (std::int32_t c = 0; c < now_->channels; ++c)
    if (now_->gpus[static_cast<std::size_t>(c * gpus_)] == gpu) return false;
  try_gpu(port_node(port), gpu, 0, goal, Order::kFree, steps);
  return true;
}

void Walk::try_gpu(std::int32_t node, std::int32_t gpu, std::int32_t step, Goal goal, Order order,
                   std::int32_t& steps) {
  const std::uint64_t flag = std::uint64_t{1} << now_->channels;
  if (node >= 0 && !take(node, gpu_node(gpu), 1)) return;
  used_[static_cast<std::size_t>(gpu)] ^= flag;
  at_gpu(gpu, step, goal, order, steps);
  used_[static_cast<std::size_t>(gpu)] ^= flag;
  if (node >= 0) take(node, gpu_node(gpu), -1);
}

void Walk::at_gpu(std::int32_t gpu, std::int32_t step, Goal goal, Order order, std::int32_t& steps) {
  if (steps <= 0) return;
  --steps;
  channel_gpu(step) = gpu;
  if (step == goal.network_at) {
    to_network(gpu, step, goal, order, steps);
  } else if (now_->pattern == Pattern::kNvls) {
    try_nvls(gpu, steps);
  } else if (now_->pattern == Pattern::kCollNetDirect) {
    try_collnet_direct(gpu, steps);
  } else if (step < gpus_ - 1) {
    std::vector<std::int32_t> next;
    if (order == Order::kPci)
      next = {step + 1};
    else if (order == Order::kReplay)
      next = {replayed(step + 1)};
    else
      next = next_gpus(gpu, goal.network_at == -1 ? 0 : goal.network_at == step + 1 ? 1 : -1);
    for (const std::int32_t other : next) try_gpu(gpu_node(gpu), other, step + 1, goal, order, steps);
  } else if (step == goal.first_at) {
    const std::int32_t first = channel_gpu(0);
    if (!take(gpu_node(gpu), gpu_node(first), 1)) return;
    channel_done(steps);
    take(gpu_node(gpu), gpu_node(first), -1);
  } else {
    channel_done(steps);
  }
}

void Walk::to_network(std::int32_t gpu, std::int32_t step, Goal goal, Order order, std::int32_t& steps) {
  const bool balanced = now_->pattern == Pattern::kBalancedTree;
  const float share = balanced ? 0.5F : 1;  // Each of the first two GPUs carries half.
  const float speed = now_->network_gb_per_s;
  Goal after{-1, goal.first_at};
  if (balanced && step == 0) after.network_at = 1;
  for (const std::int32_t port : ports_for(gpu)) {
    if (!may_leave_by(port, step)) continue;
    now_->network_gb_per_s = speed * share;
    const bool taken = take(gpu_node(gpu), port_node(port), 1);
    now_->network_gb_per_s = speed;
    if (!taken) continue;
    channel_port(1) = port;
    at_gpu(gpu, step, after, order, steps);
    now_->network_gb_per_s = speed * share;
    take(gpu_node(gpu), port_node(port), -1);
    now_->network_gb_per_s = speed;
  }
}

// Everybody sends its part of the head's data to the switch and gets the result; the head both once more.
void Walk::try_nvls(std::int32_t head, std::int32_t& steps) {
  const std::int32_t nvs = system_.all(NodeKind::kNvs).front();
  const auto times = [&](std::int32_t gpu) { return gpu == head ? 2.0F : 1.0F; };
  std::int32_t down = 0, up = 0;
  while (down < gpus_ && take(nvs, gpu_node(down), times(down))) ++down;
  if (down == gpus_) {
    while (up < gpus_ && take(gpu_node(up), nvs, times(up))) ++up;
    if (up == gpus_) channel_done(steps);
    for (; up > 0; --up) take(gpu_node(up - 1), nvs, -times(up - 1));
  }
  for (; down > 0; --down) take(nvs, gpu_node(down - 1), -times(down - 1));
}

void Walk::try_collnet_direct(std::int32_t head, std::int32_t& steps) {
  const float share = 1.0F / static_cast<float>(gpus_ - 1);
  std::int32_t out = 0, in = 0;
  while (out < gpus_ && take(gpu_node(head), gpu_node(out), share)) ++out;
  if (out == gpus_) {
    while (in < gpus_ && take(gpu_node(in), gpu_node(head), share)) ++in;
    if (in == gpus_) {
      std::int32_t step = 1;
      for (std::int32_t gpu = 0; gpu < gpus_; ++gpu)
        if (gpu != head) channel_gpu(step++) = gpu;
      channel_done(steps);
    }
    while (in > 0) take(gpu_node(--in), gpu_node(head), -share);
  }
  while (out > 0) take(gpu_node(head), gpu_node(--out), -share);
}

// ---- The end of a channel.

void Walk::channel_done(std::int32_t& steps) {
  if (steps <= 0) return;
  --steps;
  Draft& now = *now_;
  ++now.channels;
  const float node = static_cast<float>(now.channels) * now.node_gb_per_s,
              best_node = static_cast<float>(best_->channels) * best_->node_gb_per_s;
  bool better = false;
  if (now.channels < now.least_channels)
    better = false;
  else if (now.pattern == Pattern::kNvls)  // A channel is a GPU that pulls its part: the more the better.
    better = (now.channels > best_->channels && now.channels <= gpus_) ||
             static_cast<float>(now.channels) * now.network_gb_per_s >
                 static_cast<float>(best_->channels) * best_->network_gb_per_s;
  else
    better = node > best_node || (node == best_node && now.pattern == best_->pattern &&
                                  now.cross_nic == best_->cross_nic && now.hops < best_->hops);
  if (better) {
    *best_ = now;
    if (now.channels == now.most_channels) steps = Effort::kPerfect;
  }
  if (now.channels < now.most_channels) next_channel(steps);
  --now.channels;
}

}  // namespace orrery::nccl

// The settings that the search goes through: speeds, and what is relaxed before the next slower one.

#include "topology/nccl/nccl_search.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "topology/nccl/nccl_paths.hpp"
#include "topology/nccl/nccl_search_walk.hpp"

namespace orrery::nccl {
namespace {

// Steps of one setting, with equal channels and without, and of one graph.
constexpr std::int32_t kStepsSame = 1 << 8, kSteps = 1 << 14;
constexpr std::int64_t kStepsAll = 1 << 19;

PathClass worse(PathClass path) { return static_cast<PathClass>(static_cast<int>(path) + 1); }

// Two islands of NVLink with something slower between them.
bool split_nvlink(const System& system) {
  const auto& gpus = system.all(NodeKind::kGpu);
  std::vector<std::size_t> island(gpus.size()), size(gpus.size(), 0);
  for (std::size_t g = 0; g < gpus.size(); ++g) island[g] = g;
  for (std::size_t g = 0; g < gpus.size(); ++g)
    for (std::size_t p = g + 1; p < gpus.size(); ++p)
      if (system.path(gpus[g], gpus[p]).type == PathClass::kNvl) island[p] = island[g];
  for (const std::size_t i : island) ++size[i];
  return std::ranges::count_if(size, [](std::size_t s) { return s > 1; }) == 2;
}

class Search {
 public:
  Search(const System& system, Draft start)
      : system_(system), old_(system.nccl_minor <= 18), walk_(system), best_(std::move(start)) {}

  Draft run();

 private:
  void set_classes();
  // False: nothing is left to try at all.
  bool relax();
  bool faster();
  void start_second_pass();
  void duplicate();
  void fall_back();
  std::size_t first_speed(float above) const;
  void set_speed(std::size_t index) {
    speed_ = index;
    now_.node_gb_per_s = now_.network_gb_per_s = speeds_[index];
  }

  const System& system_;
  const bool old_;  // Up to 2.18.
  Walk walk_;
  Draft best_, now_;
  std::vector<float> speeds_;
  std::size_t speed_ = 0;
  std::int32_t capability_ = 0, left_ = 0;
  std::int64_t budget_ = kStepsAll;
  bool same_ = true;  // Equal channels are tried first.
  std::int32_t cross_nic_ = 0;
  PathClass least_node_ = PathClass::kLoc, most_node_ = PathClass::kSys;
  PathClass least_network_ = PathClass::kPix, most_network_ = PathClass::kSys;
};

void Search::set_classes() {
  if (old_) {
    least_node_ = system_.gpu_count() == 1 ? PathClass::kLoc : PathClass::kNvl;
    return;
  }
  if (system_.gpu_count() > 1) std::tie(least_node_, most_node_) = path_range(system_, NodeKind::kGpu);
  if (system_.inter) {
    std::tie(least_network_, most_network_) = path_range(system_, NodeKind::kNet);
    most_node_ = most_network_;
  }
  // Balanced trees may have to go round by SYS or PHB.
  if (capability_ < 90) most_network_ = PathClass::kSys;
}

std::size_t Search::first_speed(float above) const {
  std::size_t index = 0;
  while (index + 1 < speeds_.size() && speeds_[index] > above) ++index;
  return index;
}

Draft Search::run() {
  capability_ = system_.least_capability();
  const Pattern asked = best_.pattern;
  const bool ring = asked == Pattern::kRing, nvls = asked == Pattern::kNvls;
  const auto gpus = system_.gpu_count();
  set_classes();
  if (system_.all(NodeKind::kNet).size() > 1 && (old_ || ring || asked == Pattern::kBalancedTree))
    cross_nic_ = system_.variables.cross_nic;
  best_.cross_nic = cross_nic_ == 1 ? 1 : 0;
  best_.node_path = least_node_;
  best_.network_path = least_network_;
  best_.same_channels = same_ = !nvls;
  if (nvls && (system_.all(NodeKind::kNvs).empty() || capability_ < 90)) return best_;
  constexpr std::int32_t kMostNvls = 32, kMostDirect = 8;
  if (nvls) best_.most_channels = std::min(kMostNvls, gpus);
  if (asked == Pattern::kCollNetDirect) best_.most_channels = std::min(kMostDirect, gpus);
  if (gpus == 1 && !ring) best_.pattern = Pattern::kTree;
  if (nvls && !system_.inter) best_.least_channels = best_.most_channels;  // Pull from all GPUs alike.
  // Trees will do better between the islands, and need two channels; they get as many as the ring.
  if (ring && best_.most_channels >= 2 && best_.least_channels == 1 && split_nvlink(system_))
    best_.least_channels = 2;

  now_ = best_;
  speeds_ = search_speeds(capability_, system_.inter, system_.nccl_minor);
  // What a tree or a switch sends needn't come back to where it began.
  float total = system_.total_gb_per_s;
  if (gpus > 1 && !ring) total *= static_cast<float>(gpus) / static_cast<float>(gpus - 1);
  std::size_t index = 0;
  while (index + 1 < speeds_.size() && (speeds_[index] > system_.max_gb_per_s ||
                                        speeds_[index] * static_cast<float>(now_.least_channels) > total))
    ++index;
  set_speed(index);

  bool first_pass = true;
  while (true) {
    left_ = now_.same_channels ? kStepsSame : kSteps;
    budget_ -= left_;
    left_ = walk_.run(now_, best_, left_);
    const bool done = left_ == Effort::kPerfect ||
                      static_cast<float>(best_.channels) * best_.network_gb_per_s >= system_.total_gb_per_s;
    if (first_pass && !done && relax()) continue;
    if (first_pass) {
      start_second_pass();
      first_pass = false;
    }
    if (!faster()) break;
  }
  if (best_.channels == 0 && !best_.collnet && !nvls) fall_back();
  return std::move(best_);
}

bool Search::relax() {
  const SystemNode* const cpu = system_.first_cpu();
  const bool amd =
      cpu != nullptr && cpu->architecture == CpuArchitecture::kX86 && cpu->vendor == CpuVendor::kAmd;
  if (now_.same_channels && !(amd && now_.node_path == PathClass::kSys)) {
    now_.same_channels = false;
    return true;
  }
  now_.same_channels = same_;
  budget_ += left_;
  if (budget_ < 0 && best_.channels > 0) return false;

  if (capability_ >= 90 && now_.pattern == Pattern::kBalancedTree) {
    now_.pattern = Pattern::kTree;
    return true;
  }
  now_.pattern = best_.pattern;

  const PathClass most_node = system_.inter ? now_.network_path : most_node_;
  if (now_.node_path < most_node && (best_.channels == 0 || now_.node_path < best_.node_path)) {
    now_.node_path = worse(now_.node_path);
    if (now_.node_path < PathClass::kDis) return true;
  }
  now_.node_path = least_node_;

  if (system_.inter && now_.network_path < most_network_ &&
      (best_.channels == 0 || now_.network_path < best_.network_path ||
       now_.network_path < PathClass::kPxn)) {
    now_.network_path = worse(now_.network_path);
    if (now_.network_path < PathClass::kDis) return true;
  }
  now_.network_path = least_network_;

  if (cross_nic_ == 2 && now_.cross_nic == 0 &&
      (old_ || best_.pattern == Pattern::kRing || best_.pattern == Pattern::kBalancedTree)) {
    now_.cross_nic = old_ ? 1 : 2;
    return true;
  }
  now_.cross_nic = cross_nic_ == 1 ? 1 : 0;

  if (speed_ + 1 >= speeds_.size()) return false;
  if (best_.channels > 0 && static_cast<double>(speeds_[speed_ + 1] / best_.network_gb_per_s) <= 0.49)
    return false;
  set_speed(speed_ + 1);
  return true;
}

void Search::duplicate() {
  if (best_.channels == 0 || best_.pattern == Pattern::kNvls || best_.node_gb_per_s < 25) return;
  if (capability_ > 80 && best_.node_gb_per_s < 50 && best_.channels > 4) return;
  const std::int32_t channels = std::min(best_.channels * 2, best_.most_channels);
  const auto row = static_cast<std::size_t>(system_.gpu_count());
  const auto before = static_cast<std::size_t>(best_.channels);
  for (std::size_t c = before; c < static_cast<std::size_t>(channels); ++c) {
    std::copy_n(best_.gpus.begin() + static_cast<std::ptrdiff_t>((c - before) * row), row,
                best_.gpus.begin() + static_cast<std::ptrdiff_t>(c * row));
    std::copy_n(best_.ports.begin() + static_cast<std::ptrdiff_t>((c - before) * 2), 2,
                best_.ports.begin() + static_cast<std::ptrdiff_t>(c * 2));
  }
  const auto times = static_cast<float>((channels + best_.channels - 1) / best_.channels);
  best_.node_gb_per_s /= times;
  best_.network_gb_per_s /= times;
  best_.channels = channels;
}

void Search::start_second_pass() {
  left_ = Effort::kPerfect;
  duplicate();
  now_ = best_;
  set_speed(first_speed(best_.network_gb_per_s));
  now_.least_channels = best_.channels;
}

// The second pass: as long as the last try ended in time and won, the next faster one.
bool Search::faster() {
  if (left_ == 0 || speed_ == 0) return false;
  if (best_.pattern == Pattern::kRing) {
    if (old_) return false;
    set_speed(speed_ - 1);
    return true;
  }
  if (best_.pattern == Pattern::kNvls && now_.network_gb_per_s == best_.network_gb_per_s &&
      now_.network_gb_per_s < now_.node_gb_per_s * 2) {
    now_.least_channels = now_.most_channels = best_.channels;
    now_.network_gb_per_s = speeds_[--speed_];
    return true;
  }
  if (now_.node_gb_per_s == best_.node_gb_per_s && now_.node_gb_per_s < now_.network_gb_per_s * 2) {
    now_.node_gb_per_s = speeds_[--speed_];
    return true;
  }
  return false;
}

void Search::fall_back() {
  const std::int32_t gpus = system_.gpu_count();
  best_.gpus.assign(static_cast<std::size_t>(gpus), 0);
  for (std::int32_t gpu = 0; gpu < gpus; ++gpu) best_.gpus[static_cast<std::size_t>(gpu)] = gpu;
  best_.ports = {-1, -1};
  best_.node_gb_per_s = best_.network_gb_per_s = 0.1F;
  best_.node_path = best_.network_path = PathClass::kSys;
  best_.channels = 1;
  if (system_.inter && !system_.all(NodeKind::kNet).empty())
    best_.ports = {local_port(system_, 0, 0), local_port(system_, gpus - 1, 0)};
}

// ---- To values.

std::int64_t device_number(const SystemNode& node) {
  return static_cast<std::int64_t>(node.host) << 56 | node.device;
}

Graph to_graph(const System& system, GraphKind kind, const Draft& draft) {
  Graph graph;
  graph.kind = kind;
  graph.pattern = draft.pattern;
  graph.cross_nic = draft.cross_nic;
  // Floats of NCCL's tables in decimal: 2.4, not 2.4000000954.
  const auto decimal = [](float value) { return static_cast<double>(std::lround(value * 1e4F)) / 1e4; };
  graph.node_gb_per_s = decimal(draft.node_gb_per_s);
  graph.network_gb_per_s = decimal(draft.network_gb_per_s);
  graph.network_latency_us = static_cast<double>(draft.latency_us);
  graph.node_path = draft.node_path;
  graph.network_path = draft.network_path;
  graph.same_channels = draft.same_channels;
  const auto gpus = static_cast<std::size_t>(system.gpu_count());
  for (std::size_t c = 0; c < static_cast<std::size_t>(draft.channels); ++c) {
    GraphChannel& channel = graph.channels.emplace_back();
    for (std::size_t g = 0; g < (kind == GraphKind::kNvls ? 1 : gpus); ++g)
      channel.gpus.push_back(device_number(system.gpu(draft.gpus[c * gpus + g])));
    if (!system.inter) continue;
    const auto port = [&](std::size_t end) -> std::optional<std::int64_t> {
      const std::int32_t index = draft.ports[c * 2 + end];
      if (index < 0) return std::nullopt;
      const std::int32_t node = system.all(NodeKind::kNet)[static_cast<std::size_t>(index)];
      return device_number(system.nodes[static_cast<std::size_t>(node)]);
    };
    channel.entry_nic = port(0);
    channel.exit_nic = port(1);
  }
  return graph;
}

Graph search(const System& system, GraphKind kind, Pattern pattern, std::int32_t least, std::int32_t most,
             bool collnet = false) {
  Draft start;
  start.pattern = pattern;
  start.collnet = collnet;
  start.least_channels = least;
  start.most_channels = most;
  return to_graph(system, kind, Search(system, std::move(start)).run());
}

Graph nothing(GraphKind kind, Pattern pattern) {
  Graph graph;
  graph.kind = kind;
  graph.pattern = pattern;
  graph.same_channels = false;
  return graph;
}

}  // namespace

std::vector<float> search_speeds(std::int32_t least_capability, bool several_nodes, std::int32_t nccl_minor) {
  if (least_capability >= 100 && several_nodes) {
    std::vector<float> speeds{96, 86,    80, 48, 45.1F, 42, 40,   30,   24,    22,
                              20, 17.5F, 15, 12, 6,     3,  2.4F, 1.2F, 0.24F, 0.12F};
    if (nccl_minor < 30) std::erase(speeds, 86.0F);
    if (nccl_minor < 29) std::erase(speeds, 80.0F);
    return speeds;
  }
  if (least_capability >= 100) {
    std::vector<float> speeds{90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
    if (nccl_minor < 27) std::erase(speeds, 45.0F);
    return speeds;
  }
  if (least_capability >= 90 && several_nodes)
    return {48, 45, 42, 40, 30, 24, 22, 20, 17.5F, 15, 12, 6, 3, 2.4F, 1.2F, 0.24F, 0.12F};
  if (least_capability >= 90) return {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
  if (nccl_minor < 17) {  // Of 2.12.
    if (several_nodes) return {48, 30, 24, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4F, 1.2F, 0.24F, 0.12F};
    return {44, 30, 22, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
  }
  if (several_nodes) return {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4F, 1.2F, 0.24F, 0.12F};
  return {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
}

Graphs search_graphs(const System& system, const SearchOptions& options) {
  // Half of what a communicator can have: they are used twice.
  const std::int32_t most = system.nccl_minor >= 25 ? 64 : 32;
  Graphs graphs;
  graphs.ring = search(system, GraphKind::kRing, Pattern::kRing, 1, most / 2);
  const auto channels = static_cast<std::int32_t>(graphs.ring.channels.size());
  graphs.tree = search(system, GraphKind::kTree, Pattern::kBalancedTree, channels, channels);
  graphs.collnet_chain = nothing(GraphKind::kCollNetChain, Pattern::kTree);
  graphs.collnet_direct = nothing(GraphKind::kCollNetDirect, Pattern::kCollNetDirect);
  graphs.nvls = nothing(GraphKind::kNvls, Pattern::kNvls);
  if (options.collnet) {
    graphs.collnet_chain = search(system, GraphKind::kCollNetChain, Pattern::kTree, channels, channels, true);
    if (system.gpu_count() > 1)
      graphs.collnet_direct =
          search(system, GraphKind::kCollNetDirect, Pattern::kCollNetDirect, 1, most, true);
  }
  if (options.nvls && system.variables.nvls != 0)
    graphs.nvls = search(system, GraphKind::kNvls, Pattern::kNvls, 1, most);
  return graphs;
}

}  // namespace orrery::nccl

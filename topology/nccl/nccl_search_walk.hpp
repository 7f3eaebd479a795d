#pragma once
// One setting of NCCL's search: adds channels one after the other by depth-first search with back-tracking,
// taking the setting's speed from every link on the way, and keeps the best it comes by.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "topology/nccl/nccl_system.hpp"

namespace orrery::nccl {

// A graph in the making. GPUs and ports are indices within their kind.
struct Draft {
  Pattern pattern = Pattern::kRing;
  bool collnet = false;
  std::int32_t cross_nic = 0;
  std::int32_t channels = 0, least_channels = 1, most_channels = 1;
  float node_gb_per_s = 0, network_gb_per_s = 0;
  PathClass node_path = PathClass::kLoc, network_path = PathClass::kLoc;
  bool same_channels = true;
  float latency_us = 0;
  float hops = 0;
  std::vector<std::int32_t> gpus;   // A row of all GPUs per channel.
  std::vector<std::int32_t> ports;  // Entry and exit per channel.
};

// How a search ended: steps that were left, or that nothing better is possible.
struct Effort {
  static constexpr std::int32_t kPerfect = -1;
  std::int32_t left = 0;
};

// Appends what isn't there yet.
inline void add_new(std::vector<std::int32_t>& list, std::int32_t value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

class Walk {
 public:
  explicit Walk(const System& system);

  // Fills `best` whenever it is beaten. Returns what is left of `steps`, or Effort::kPerfect.
  std::int32_t run(Draft& setting, Draft& best, std::int32_t steps);

 private:
  enum class Order : std::uint8_t { kFree, kPci, kReplay };
  // Where a channel must turn to the network (after which GPU) and back to its first GPU; −1: never.
  struct Goal {
    std::int32_t network_at = -1, first_at = -1;
  };

  void next_channel(std::int32_t& steps);
  void from_ports(Goal goal, std::int32_t& steps);
  void from_port(std::int32_t port, Goal goal, std::int32_t& steps);
  bool try_head(std::int32_t port, Goal goal, std::int32_t& steps);
  // `node`: where the path starts; −1: nowhere.
  void try_gpu(std::int32_t node, std::int32_t gpu, std::int32_t step, Goal goal, Order order,
               std::int32_t& steps);
  void at_gpu(std::int32_t gpu, std::int32_t step, Goal goal, Order order, std::int32_t& steps);
  void to_network(std::int32_t gpu, std::int32_t step, Goal goal, Order order, std::int32_t& steps);
  void try_nvls(std::int32_t head, std::int32_t& steps);
  void try_collnet_direct(std::int32_t head, std::int32_t& steps);
  void channel_done(std::int32_t& steps);

  bool may_leave_by(std::int32_t port, std::int32_t step) const;
  std::vector<std::int32_t> next_gpus(std::int32_t gpu, int network) const;
  std::vector<std::int32_t> neighbours(std::int32_t gpu) const;
  const std::vector<std::int32_t>& ports_for(std::int32_t gpu);  // −1: for any GPU.
  void old_ports_for(std::int32_t first, std::int32_t last, std::vector<std::int32_t>& ports) const;
  std::vector<std::int32_t> first_gpus(std::int32_t port) const;
  std::int32_t replayed(std::int32_t step) const;
  int pci_gb_per_s(std::int32_t gpu) const;

  // Takes `times` the setting's speed from the links of a path; false: they can't give it, nothing is taken.
  bool take(std::int32_t from, std::int32_t to, float times);
  bool take_links(const SystemPath& path, std::int32_t from, std::size_t count, float speed,
                  std::size_t& reached);
  void charge_card(std::int32_t port, float gb_per_s);

  std::int32_t gpu_node(std::int32_t gpu) const;
  std::int32_t port_node(std::int32_t port) const;
  std::int32_t& channel_gpu(std::int32_t step);
  std::int32_t& channel_port(std::int32_t end);

  const System& system_;
  const bool old_;  // Up to 2.18: no rule for NVSwitches, no pairs of channels, ports by class alone.
  std::int32_t gpus_;
  std::vector<float> left_;         // By link.
  std::vector<float> port_left_;    // By port.
  std::vector<std::int32_t> card_;  // By port: equal for ports that share their bandwidth.
  std::vector<std::int32_t> back_;  // Link to the same two nodes the other way round, by link; −1: none.
  std::vector<std::vector<std::int32_t>> first_;      // By port: the GPUs beside it, its own first.
  std::vector<std::uint64_t> used_;                   // By GPU, a bit per channel.
  std::vector<std::vector<std::int32_t>> ports_for_;  // By GPU + 1 and class; filled when asked for.
  Draft* now_ = nullptr;
  Draft* best_ = nullptr;
};

}  // namespace orrery::nccl

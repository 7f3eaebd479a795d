#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.hpp"
#include "topology/fabric_kinds.hpp"

namespace orrery {
namespace {

// Group G's cables to other groups are numbered 0 … switches · global links − 1, switch by switch. Cable c
// leads to the group that stands 1 + c mod (groups − 1) after G: the "consecutive" arrangement. So each two
// groups share as many cables, one for each full round; those of a started round stay unused.
class Dragonfly final : public FabricRoutes {
 public:
  explicit Dragonfly(const Cluster& cluster)
      : nodes_per_switch_(cluster.fabric.nodes_per_leaf),
        size_(cluster.fabric.switches_per_group),
        global_(cluster.fabric.global_links),
        bytes_per_s_(cluster.fabric.link_bytes_per_s > 0 ? cluster.fabric.link_bytes_per_s
                                                         : cluster.node.nic_bytes_per_s) {
    if (size_ < 1 || global_ < 1)
      fail(ErrorKind::kInput,
           "cluster {}: a dragonfly needs at least one switch per group and one global link per switch",
           cluster.name);
    const std::int32_t needed = (cluster.nodes + nodes_per_switch_ - 1) / nodes_per_switch_;
    groups_ = (needed + size_ - 1) / size_;
    switches_ = groups_ * size_;  // All groups are whole; the last switches may have no nodes.
    const std::int64_t cables = std::int64_t{size_} * global_;
    if (cables < groups_ - 1)
      fail(ErrorKind::kInput,
           "cluster {}: {} switches with {} global links reach {} other groups, but there are {}; give a "
           "switch more global_links, or a group more switches",
           cluster.name, size_, global_, cables, groups_ - 1);
    rounds_ = groups_ > 1 ? cables / (groups_ - 1) : 0;
    local_pairs_ = std::int64_t{size_} * (size_ - 1) / 2;
    first_global_ = 2 * local_pairs_ * groups_;
    count_ = first_global_ + std::int64_t{groups_} * (groups_ - 1) * rounds_;
  }

  std::int32_t leaf_count() const override { return switches_; }
  std::int32_t leaf(FabricPort port) const override { return port.node / nodes_per_switch_; }
  std::string leaf_name(std::int32_t leaf) const override {
    return fmt::format("group{}.switch{}", leaf / size_, leaf % size_);
  }

  // Those of the fewest hops among the cables that join the two groups.
  std::int64_t path_count(std::int32_t from, std::int32_t to) const override {
    if (from / size_ == to / size_) return 1;
    std::int64_t count = 0;
    const std::int32_t fewest = fewest_hops(from, to);
    for (std::int64_t round = 0; round < rounds_; ++round) count += hops(from, to, round) == fewest;
    return count;
  }
  std::int64_t hashed_path(std::int32_t from, std::int32_t to, std::uint64_t hash) const override {
    return static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(path_count(from, to)));
  }
  std::int64_t usual_path(std::int32_t from, std::int32_t to) const override {
    return (from + to) % path_count(from, to);
  }

  void append_path(std::int32_t from, std::int32_t to, std::int64_t path,
                   std::vector<PathLink>& links) const override {
    if (from / size_ == to / size_) {
      append_local(from, to, links);
      return;
    }
    const std::int64_t round = round_of(from, to, path);
    const std::int32_t exit = gateway(from, to, round), entrance = gateway(to, from, round);
    append_local(from, exit, links);
    const std::int32_t low = std::min(from, to) / size_, high = std::max(from, to) / size_;
    const LinkInstance pair = std::int64_t{high} * (high - 1) / 2 + low;
    links.push_back({first_global_ + 2 * (pair * rounds_ + round) + (from > to), bytes_per_s_});
    append_local(entrance, to, links);
  }
  std::int32_t switches(std::int32_t from, std::int32_t to) const override {
    if (from == to) return 1;
    return 1 + (from / size_ == to / size_ ? 1 : fewest_hops(from, to));
  }

  LinkInstance link_count() const override { return count_; }
  bool binds(LinkInstance) const override { return true; }

  std::string link_name(LinkInstance link) const override {
    assert(link >= 0 && link < count_);
    const auto joined = [&](std::int32_t a, std::int32_t b, const char* arrow) {
      if (link % 2 != 0) std::swap(a, b);
      return fmt::format("{} {} {}", leaf_name(a), arrow, leaf_name(b));
    };
    if (link < first_global_) {
      const std::int64_t cable = link / 2;
      const auto group = static_cast<std::int32_t>(cable / local_pairs_);
      const auto [low, high] = pair_of(cable % local_pairs_);
      return joined(group * size_ + low, group * size_ + high, "→");
    }
    const std::int64_t cable = (link - first_global_) / 2;
    const auto [low, high] = pair_of(cable / rounds_);
    const std::int64_t round = cable % rounds_;
    // Two cables may join the same two switches; the round tells them apart.
    return joined(gateway(low * size_, high * size_, round), gateway(high * size_, low * size_, round),
                  fmt::format("→{}", round).c_str());
  }

 private:
  // The switch of `from`'s group from which the round's cable leads to `to`'s group.
  std::int32_t gateway(std::int32_t from, std::int32_t to, std::int64_t round) const {
    const std::int32_t a = from / size_, b = to / size_;
    const std::int64_t cable = (b - a - 1 + groups_) % groups_ + round * (groups_ - 1);
    return a * size_ + static_cast<std::int32_t>(cable / global_);
  }
  std::int32_t hops(std::int32_t from, std::int32_t to, std::int64_t round) const {
    return 1 + (gateway(from, to, round) != from) + (gateway(to, from, round) != to);
  }
  std::int32_t fewest_hops(std::int32_t from, std::int32_t to) const {
    std::int32_t fewest = 3;
    for (std::int64_t round = 0; round < rounds_; ++round) fewest = std::min(fewest, hops(from, to, round));
    return fewest;
  }
  std::int64_t round_of(std::int32_t from, std::int32_t to, std::int64_t path) const {
    const std::int32_t fewest = fewest_hops(from, to);
    std::int64_t round = 0;
    for (;; ++round)
      if (hops(from, to, round) == fewest && path-- == 0) return round;
  }
  void append_local(std::int32_t from, std::int32_t to, std::vector<PathLink>& links) const {
    if (from == to) return;
    const std::int32_t group = from / size_, low = std::min(from, to) % size_,
                       high = std::max(from, to) % size_;
    const LinkInstance cable = group * local_pairs_ + std::int64_t{high} * (high - 1) / 2 + low;
    links.push_back({2 * cable + (from > to), bytes_per_s_});
  }
  // Pairs low < high in the order of high, then low.
  static std::pair<std::int32_t, std::int32_t> pair_of(std::int64_t number) {
    std::int32_t high = 1;
    while (std::int64_t{high} * (high + 1) / 2 <= number) ++high;
    return {static_cast<std::int32_t>(number - std::int64_t{high} * (high - 1) / 2), high};
  }

  std::int32_t nodes_per_switch_ = 1, size_ = 1, global_ = 1;
  double bytes_per_s_ = 0;
  std::int32_t groups_ = 1, switches_ = 1;
  std::int64_t rounds_ = 0, local_pairs_ = 0;
  LinkInstance first_global_ = 0, count_ = 0;
};

}  // namespace

std::unique_ptr<FabricRoutes> make_dragonfly(const Cluster& cluster) {
  return std::make_unique<Dragonfly>(cluster);
}

}  // namespace orrery

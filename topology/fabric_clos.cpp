#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"
#include "topology/fabric_kinds.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMaxCables = std::int64_t{1} << 30;

// Level 0 are the leaf switches, level l the groups that tier l − 1 of the description joins. A group of
// level l has so many switches as a switch of the level below has uplinks, each with a cable to every switch
// below.
struct Level {
  std::int32_t nodes = 1;           // Under one full group.
  std::int32_t parts = 1;           // Groups, per rail where rails are apart.
  bool rails_apart = false;         // One group for each NIC of a node.
  double oversubscription = 1;      // Of this level's trunks,
  double all_oversubscription = 1;  // and of all down to the leaf switches.
  std::int64_t uplinks = 1;         // Of each switch.
  std::int64_t cables = 1;          // Of a group: one per path up to here.
  LinkInstance first = 0;
};

class Clos final : public FabricRoutes {
 public:
  Clos(const Cluster& cluster, bool bundled)
      : nodes_(cluster.nodes),
        nics_(cluster.node.nics),
        nic_bytes_per_s_(cluster.node.nic_bytes_per_s),
        bundled_(bundled),
        rail_only_(cluster.fabric.kind == FabricKind::kRailOnly),
        rails_(cluster.fabric.kind != FabricKind::kFatTree) {
    const Fabric& fabric = cluster.fabric;
    Level leaf;
    leaf.rails_apart = rails_;
    leaf.nodes = fabric.nodes_per_leaf;
    leaf.oversubscription = leaf.all_oversubscription = fabric.oversubscription;
    leaf.uplinks = uplinks(fabric.uplinks, nics_under(leaf, leaf.nodes), fabric.oversubscription);
    leaf.cables = leaf.uplinks;
    add(leaf);
    for (const FabricTier& tier : fabric.tiers) add_tier(tier, cluster);
    if (!bundled_ && count_ > kMaxCables)
      fail(ErrorKind::kInput, "cluster {}: the fabric has {} cables, too many to tell apart", cluster.name,
           count_ / 2);
  }

  std::int32_t leaf_count() const override { return groups(levels_.front()); }
  std::int32_t leaf(FabricPort port) const override { return group(levels_.front(), port.node, port.nic); }
  std::string leaf_name(std::int32_t leaf) const override { return group_name(0, leaf); }

  std::int64_t path_count(std::int32_t from, std::int32_t to) const override {
    const std::size_t top = levels_up(from, to);
    if (top == 0) return 1;
    if (rail_only_ && rail(from) != rail(to)) return 0;
    return bundled_ ? 1 : levels_[top - 1].cables;
  }

  // Each switch on the way up hashes for itself.
  std::int64_t hashed_path(std::int32_t from, std::int32_t to, std::uint64_t hash) const override {
    std::int64_t path = 0;
    if (bundled_) return path;
    for (std::size_t l = 0; l < levels_up(from, to); ++l) {
      const auto choice =
          static_cast<std::int64_t>(mix64(hash + l) % static_cast<std::uint64_t>(levels_[l].uplinks));
      path = path * levels_[l].uplinks + choice;
    }
    return path;
  }
  std::int64_t usual_path(std::int32_t from, std::int32_t to) const override {
    return (from + to) % path_count(from, to);
  }

  void append_path(std::int32_t from, std::int32_t to, std::int64_t path,
                   std::vector<PathLink>& links) const override {
    const std::size_t top = levels_up(from, to);
    const std::size_t begin = links.size();
    links.resize(begin + 2 * top);
    for (std::size_t l = top; l-- > 0;) {  // The cable of a lower level follows from that of the one above.
      links[begin + l] = trunk(l, from, path, true);
      links[begin + 2 * top - 1 - l] = trunk(l, to, path, false);
      path /= levels_[l].uplinks;
    }
  }
  std::int32_t switches(std::int32_t from, std::int32_t to) const override {
    return 1 + 2 * static_cast<std::int32_t>(levels_up(from, to));
  }

  LinkInstance link_count() const override { return count_; }
  bool binds(LinkInstance link) const override {
    return !bundled_ || levels_[level_of(link)].oversubscription > 1;
  }

  std::string link_name(LinkInstance link) const override {
    const std::size_t l = level_of(link);
    const Level& level = levels_[l];
    const std::int64_t each = bundled_ ? 1 : level.cables, cable = (link - level.first) / 2 % each;
    const auto number = static_cast<std::int32_t>((link - level.first) / 2 / each);
    std::string below = group_name(l, number), above = parent_name(l, number);
    if (!bundled_) {
      if (l > 0) below += fmt::format(".{}", cable / level.uplinks);
      above += fmt::format(".{}", cable);
    }
    return link % 2 == 0 ? below + " → " + above : above + " → " + below;
  }

 private:
  std::int32_t nics_under(const Level& level, std::int32_t nodes) const {
    return level.rails_apart ? nodes : nodes * nics_;
  }
  std::int32_t groups(const Level& level) const { return level.parts * (level.rails_apart ? nics_ : 1); }
  std::int32_t group(const Level& level, std::int32_t node, std::int32_t nic) const {
    return node / level.nodes + (level.rails_apart ? nic * level.parts : 0);
  }
  static std::int64_t uplinks(std::int32_t given, std::int32_t below, double oversubscription) {
    return given > 0 ? given : std::max(1LL, std::llround(below / oversubscription));
  }

  void add(Level level) {
    level.parts = (nodes_ + level.nodes - 1) / level.nodes;
    level.first = count_;
    count_ += 2 * groups(level) * (bundled_ ? 1 : level.cables);
    levels_.push_back(level);
  }
  void add_tier(const FabricTier& tier, const Cluster& cluster) {
    if (tier.joins < 1 || !(tier.oversubscription > 0))
      fail(ErrorKind::kInput,
           "cluster {}: a tier of the fabric joins at least one group and has an oversubscription above 0",
           cluster.name);
    const Level below = levels_.back();
    Level level;
    level.rails_apart = rail_only_;
    level.nodes =
        static_cast<std::int32_t>(std::min<std::int64_t>(std::int64_t{below.nodes} * tier.joins, nodes_));
    level.oversubscription = tier.oversubscription;
    level.all_oversubscription = below.all_oversubscription * tier.oversubscription;
    const std::int32_t ports = tier.joins * (below.rails_apart && !level.rails_apart ? nics_ : 1);
    level.uplinks = uplinks(tier.uplinks, ports, tier.oversubscription);
    level.cables = below.cables * level.uplinks;
    if (level.cables > kMaxCables)
      fail(ErrorKind::kInput, "cluster {}: a group of the fabric has {} uplinks; expected at most {}",
           cluster.name, level.cables, kMaxCables);
    add(level);
  }

  std::int32_t rail(std::int32_t leaf) const { return rails_ ? leaf / levels_.front().parts : 0; }
  std::int32_t first_node(std::int32_t leaf) const {
    return leaf % levels_.front().parts * levels_.front().nodes;
  }
  std::int32_t group_at(std::size_t level, std::int32_t leaf) const {
    return group(levels_[level], first_node(leaf), rail(leaf));
  }
  // How many trunks lead up from each end until both are in one group.
  std::size_t levels_up(std::int32_t from, std::int32_t to) const {
    std::size_t level = 0;
    while (level < levels_.size() && group_at(level, from) != group_at(level, to)) ++level;
    return level;
  }

  // All NICs under the group at full rate, less the oversubscription. Cables don't grow narrower where a
  // group has fewer nodes than it could have.
  PathLink trunk(std::size_t l, std::int32_t leaf, std::int64_t path, bool up) const {
    const Level& level = levels_[l];
    const std::int32_t number = group_at(l, leaf);
    const std::int32_t part = number % level.parts;
    const std::int32_t nodes = bundled_ ? std::min(level.nodes, nodes_ - part * level.nodes) : level.nodes;
    const double bytes_per_s = nics_under(level, nodes) * nic_bytes_per_s_ / level.all_oversubscription;
    if (bundled_) return {level.first + 2 * number + !up, bytes_per_s};
    const LinkInstance cable = number * level.cables + path;
    return {level.first + 2 * cable + !up, bytes_per_s / static_cast<double>(level.cables)};
  }

  std::size_t level_of(LinkInstance link) const {
    assert(link >= 0 && link < count_);
    std::size_t level = levels_.size() - 1;
    while (link < levels_[level].first) --level;
    return level;
  }
  std::string group_name(std::size_t l, std::int32_t number) const {
    const Level& level = levels_[l];
    const std::string stem = l == 0 ? "leaf" : fmt::format("tier{}.", l);
    return level.rails_apart ? fmt::format("{}{}.{}", stem, number / level.parts, number % level.parts)
                             : fmt::format("{}{}", stem, number);
  }

  // Without the number of the switch in the group.
  std::string parent_name(std::size_t l, std::int32_t number) const {
    const Level& level = levels_[l];
    const std::int32_t rail = level.rails_apart ? number / level.parts : 0;
    if (l + 1 == levels_.size()) return rail_only_ ? fmt::format("spine{}", rail) : "spine";
    return group_name(l + 1, group(levels_[l + 1], number % level.parts * level.nodes, rail));
  }

  std::int32_t nodes_ = 0, nics_ = 0;
  double nic_bytes_per_s_ = 0;
  bool bundled_ = true, rail_only_ = false, rails_ = false;
  std::vector<Level> levels_;
  LinkInstance count_ = 0;
};

}  // namespace

std::unique_ptr<FabricRoutes> make_clos(const Cluster& cluster, bool bundled) {
  return std::make_unique<Clos>(cluster, bundled);
}

}  // namespace orrery

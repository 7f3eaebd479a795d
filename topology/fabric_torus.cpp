#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>

#include "base/error.hpp"
#include "topology/fabric_kinds.hpp"

namespace orrery {
namespace {

// A path's way along one dimension.
struct Leg {
  std::int32_t dimension = 0;
  std::int32_t hops = 0;
  bool forward = true;  // To the next higher coordinate.
};

// Node n has the coordinates n mod size 0, n / size 0 mod size 1, …; its cable number d leads to the next
// node along dimension d.
class Torus final : public FabricRoutes {
 public:
  explicit Torus(const Cluster& cluster) : sizes_(cluster.fabric.torus) {
    const auto dimensions = static_cast<std::int32_t>(sizes_.size());
    if (dimensions < 1 || dimensions > kMaxDimensions)
      fail(ErrorKind::kInput, "cluster {}: a torus has 1 to {} dimensions, not {}", cluster.name,
           kMaxDimensions, dimensions);
    std::int64_t nodes = 1;
    for (const std::int32_t size : sizes_) {
      if (size < 1)
        fail(ErrorKind::kInput, "cluster {}: a torus has at least one node along each dimension",
             cluster.name);
      nodes *= size;
      if (nodes > cluster.nodes) break;
    }
    if (nodes != cluster.nodes)
      fail(ErrorKind::kInput, "cluster {}: a torus of {} makes not {} nodes; let the product be theirs",
           cluster.name, fmt::join(sizes_, " x "), cluster.nodes);
    nodes_ = cluster.nodes;
    const double share = cluster.node.nics * cluster.node.nic_bytes_per_s / (2 * dimensions);
    bytes_per_s_ = cluster.fabric.link_bytes_per_s > 0 ? cluster.fabric.link_bytes_per_s
                                                       : std::max(share, cluster.node.nic_bytes_per_s);
  }

  std::int32_t leaf_count() const override { return nodes_; }
  std::int32_t leaf(FabricPort port) const override { return port.node; }
  std::string leaf_name(std::int32_t leaf) const override { return fmt::format("router{}", leaf); }

  std::int64_t path_count(std::int32_t from, std::int32_t to) const override {
    const Way way = way_between(from, to);
    std::int64_t count = 1;
    for (std::int32_t i = 2; i <= way.count; ++i) count *= i;
    return count << way.ties;
  }
  std::int64_t hashed_path(std::int32_t from, std::int32_t to, std::uint64_t hash) const override {
    return static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(path_count(from, to)));
  }
  // Dimension order, which can't deadlock.
  std::int64_t usual_path(std::int32_t, std::int32_t) const override { return 0; }

  void append_path(std::int32_t from, std::int32_t to, std::int64_t path,
                   std::vector<PathLink>& links) const override {
    Way way = way_between(from, to);
    std::int64_t turns = path & ((std::int64_t{1} << way.ties) - 1), order = path >> way.ties;
    for (std::int32_t i = 0; i < way.count; ++i) {
      Leg& leg = way.legs[static_cast<std::size_t>(i)];
      if (!tied(leg)) continue;
      leg.forward ^= (turns & 1) != 0;
      turns >>= 1;
    }
    std::int32_t at = from;
    for (std::int32_t left = way.count; left > 0; --left) {
      const auto chosen = static_cast<std::size_t>(order % left);
      order /= left;
      const Leg leg = way.legs[chosen];
      std::move(way.legs.begin() + chosen + 1, way.legs.begin() + left, way.legs.begin() + chosen);
      for (std::int32_t hop = 0; hop < leg.hops; ++hop) {
        const std::int32_t next = neighbour(at, leg);
        const LinkInstance cable =
            static_cast<LinkInstance>(leg.forward ? at : next) * dimensions() + leg.dimension;
        links.push_back({2 * cable + !leg.forward, bytes_per_s_});
        at = next;
      }
    }
    assert(at == to);
  }
  std::int32_t switches(std::int32_t from, std::int32_t to) const override {
    const Way way = way_between(from, to);
    std::int32_t passed = 1;
    for (std::int32_t i = 0; i < way.count; ++i) passed += way.legs[static_cast<std::size_t>(i)].hops;
    return passed;
  }

  LinkInstance link_count() const override { return LinkInstance{2} * nodes_ * dimensions(); }
  bool binds(LinkInstance) const override { return true; }

  std::string link_name(LinkInstance link) const override {
    const LinkInstance cable = link / 2;
    const auto node = static_cast<std::int32_t>(cable / dimensions());
    const auto dimension = static_cast<std::int32_t>(cable % dimensions());
    std::string a = leaf_name(node), b = leaf_name(neighbour(node, {dimension, 1, true}));
    if (link % 2 != 0) std::swap(a, b);
    // In a ring of two nodes two cables join the same routers.
    return fmt::format("{} →{}{} {}", a, link % 2 == 0 ? "+" : "-", "xyz"[dimension], b);
  }

 private:
  static constexpr std::int32_t kMaxDimensions = 3;
  struct Way {
    std::array<Leg, kMaxDimensions> legs;
    std::int32_t count = 0;
    std::int32_t ties = 0;  // Legs that are as long the other way round.
  };

  std::int32_t dimensions() const { return static_cast<std::int32_t>(sizes_.size()); }
  std::int32_t size(std::int32_t dimension) const { return sizes_[static_cast<std::size_t>(dimension)]; }
  bool tied(const Leg& leg) const { return 2 * leg.hops == size(leg.dimension); }
  std::int32_t stride(std::int32_t dimension) const {
    return std::accumulate(sizes_.begin(), sizes_.begin() + dimension, 1, std::multiplies<>());
  }
  std::int32_t neighbour(std::int32_t node, const Leg& leg) const {
    const std::int32_t step = stride(leg.dimension), along = size(leg.dimension);
    const std::int32_t at = node / step % along, next = (at + (leg.forward ? 1 : along - 1)) % along;
    return node + (next - at) * step;
  }
  // In dimension order. Where both ways round are equally long, nodes of even and odd coordinate take
  // different ones, which loads both.
  Way way_between(std::int32_t from, std::int32_t to) const {
    Way way;
    for (std::int32_t d = 0, step = 1; d < dimensions(); step *= size(d), ++d) {
      const std::int32_t at = from / step % size(d), ahead = (to / step - from / step) % size(d);
      const std::int32_t up = (ahead + size(d)) % size(d), down = size(d) - up;
      if (up == 0) continue;
      const Leg leg{d, std::min(up, down), up == down ? at % 2 == 0 : up < down};
      way.ties += up == down;
      way.legs[static_cast<std::size_t>(way.count++)] = leg;
    }
    return way;
  }

  std::vector<std::int32_t> sizes_;
  std::int32_t nodes_ = 1;
  double bytes_per_s_ = 0;
};

}  // namespace

std::unique_ptr<FabricRoutes> make_torus(const Cluster& cluster) { return std::make_unique<Torus>(cluster); }

}  // namespace orrery

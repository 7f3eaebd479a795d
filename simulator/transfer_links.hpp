#pragma once
// Which links the members of a group use, and how often.

#include <cstdint>
#include <span>
#include <vector>

#include "simulator/collective_cost.hpp"
#include "simulator/job.hpp"
#include "simulator/link_paths.hpp"
#include "topology/cluster.hpp"

namespace orrery::folding {

// Numbers links densely in the order of their first use, and adds up the uses of one transfer.
class LinkCounter {
 public:
  explicit LinkCounter(const LinkPaths& router);

  void add(std::span<const PathLink> path, std::int32_t count);
  // The uses since the last call, each link once, appended to `uses`. Returns the rate at which the first of
  // them is full; 0 when there are none.
  std::int64_t take(std::vector<LinkUse>& uses);

  // −1: no transfer used it.
  std::int32_t number(LinkInstance link) const { return number_of_[static_cast<std::size_t>(link)]; }
  std::vector<std::int64_t>& capacity() { return capacity_; }

 private:
  std::vector<std::int32_t> number_of_;  // By link instance; −1: not yet used.
  std::vector<std::int64_t> capacity_;   // By number, as `slot_of_`.
  std::vector<std::int32_t> slot_of_;    // In current_; −1: not in it.
  std::vector<LinkUse> current_;
};

// A group's devices in the order of their rings, node by node. Nodes of one NVLink domain count as one here.
struct Layout {
  std::vector<std::int32_t> devices;
  std::vector<Range> nodes;  // Into devices.
  std::vector<std::int32_t>
      exits;  // Into devices: of several nodes, where each one's channels leave and enter.
  std::int32_t channels = 1;

  GroupShape shape(const NodeType& node) const;
};
Layout lay_out(std::vector<std::int32_t> devices, std::int32_t gpus_per_domain);
// Rings in the order that the router's Rerouting asks for, and no more channels between nodes than each
// node's members have network cards.
void reroute(Layout& group, const LinkPaths& router);

void add_ring(const Layout& group, const LinkPaths& router, LinkCounter& counter);
void add_all_to_all(const Layout& group, const LinkPaths& router, LinkCounter& counter);

// Channels of a group's rings that go from one device to another.
struct RingUse {
  std::int32_t from = 0, to = 0;  // Devices.
  std::int32_t count = 1;         // Of Layout::channels, which carry equal shares.
};
std::vector<RingUse> ring_uses(const Layout& group);

}  // namespace orrery::folding

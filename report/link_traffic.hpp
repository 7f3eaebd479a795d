#pragma once
// What messages between ranks do to the links of the machine: bytes by kind of link, and how full and how
// busy links are. Counts sends; collectives, whose bytes the library spreads, stay out.

#include <array>
#include <cstdint>

#include "model/program.hpp"
#include "model/timeline.hpp"
#include "topology/cluster.hpp"

namespace orrery {

// The slowest kind of link on a message's way.
enum class RouteKind : std::uint8_t {
  kNvLink,   // Nothing but NVLink.
  kPcie,     // Inside a node over PCIe, and over the link between CPUs where they are on two of them.
  kNetwork,  // From node to node.
};
inline constexpr int kRouteKindCount = 3;

struct LinkTraffic {
  std::array<std::int64_t, kRouteKindCount> bytes{};  // Of one step, sent by that kind of route.
  // Directions of NVLinks; a cable has two.
  std::int32_t nvlinks = 0, nvlinks_used = 0;
  // Bytes carried over capacity × step time, of the used NVLinks and of all of them.
  double nvlink_utilisation = 0, nvlink_utilisation_all = 0;
  double nvlink_busy = 0;  // Part of the step in which a message is on its way, mean over the used NVLinks.
  double pcie_utilisation = 0;  // As nvlink_utilisation, of the used PCIe links and links between CPUs.

  std::int64_t total_bytes() const { return bytes[0] + bytes[1] + bytes[2]; }
  double share(RouteKind kind) const;  // Of all bytes; 0 when there are none.
};

// REQUIRES: a Timeline of this Program, not folded: a class for every rank.
LinkTraffic link_traffic(const Program& program, const Cluster& cluster, const Timeline& timeline);

}  // namespace orrery

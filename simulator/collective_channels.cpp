// The ends of NCCL's search for graphs (2.30.7, src/graph/search.cc) on regular machines.

#include <algorithm>
#include <cassert>
#include <span>

#include "simulator/collective_tuning.hpp"

namespace orrery::nccl {
namespace {

constexpr double kNode80[]{40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
constexpr double kNode90[]{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr double kNode100[]{90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr double kNetwork80[]{48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
constexpr double kNetwork90[]{48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12};
constexpr double kNetwork100[]{96, 86,   80, 48, 45.1, 42, 40,  30,  24,   22,
                               20, 17.5, 15, 12, 6,    3,  2.4, 1.2, 0.24, 0.12};
constexpr std::int32_t kMostChannels = 32;

std::span<const double> speeds(Generation generation, bool one_node) {
  if (generation == Generation::kBlackwell)
    return one_node ? std::span<const double>(kNode100) : std::span<const double>(kNetwork100);
  if (generation == Generation::kHopper)
    return one_node ? std::span<const double>(kNode90) : std::span<const double>(kNetwork90);
  return one_node ? std::span<const double>(kNode80) : std::span<const double>(kNetwork80);
}

// Floating-point rates of links and of the list meet exactly only by luck.
constexpr double kSlack = 1 + 1e-9;

std::int32_t channels_at(const GroupLinks& links, double each) {
  if (links.nodes == 1)
    return std::min(kMostChannels, static_cast<std::int32_t>(links.node_gb_per_s * kSlack / each));
  std::int32_t channels =
      std::min(kMostChannels, links.nics * static_cast<std::int32_t>(links.nic_gb_per_s * kSlack / each));
  // A channel enters a GPU from the network on one of its node's GPUs, over links of the node on the others.
  const double inside = 1 - static_cast<double>(links.nodes) / links.ranks;
  while (channels > 0 && channels * inside * each > links.node_gb_per_s * kSlack) --channels;
  return channels;
}

// A slower speed is kept only if it moves more in all, and isn't tried once below half of a solution's.
ChannelGraph find_ring(const GroupLinks& links) {
  ChannelGraph best;
  for (const double each : speeds(links.generation, links.nodes == 1)) {
    if (best.channels > 0 && each <= 0.49 * best.node_gb_per_s) break;
    const std::int32_t channels = channels_at(links, each);
    if (channels * each > best.channels * best.node_gb_per_s) best = {channels, each, each};
  }
  if (best.channels == 0) {  // Slower than the slowest of the list.
    const double all = links.nodes == 1 ? links.node_gb_per_s : links.nic_gb_per_s;
    return {1, all, all};
  }
  const bool enough = links.generation >= Generation::kHopper && best.node_gb_per_s < 50 && best.channels > 4;
  if (best.node_gb_per_s >= 25 && !enough && 2 * best.channels <= kMostChannels)
    best = {2 * best.channels, best.node_gb_per_s / 2, best.network_gb_per_s / 2};
  return best;
}

// Every GPU sends each head's part to the switch, and as a head its own once more.
ChannelGraph find_nvls(const GroupLinks& links) {
  const std::int32_t per_node = links.ranks / links.nodes;
  if (!links.multicast || links.generation < Generation::kHopper || per_node < 2) return {};
  const std::int32_t heads =
      std::min(kMostChannels, links.nodes == 1 ? per_node : std::min(per_node, links.nics));
  const std::span<const double> list = speeds(links.generation, links.nodes == 1);
  const double most = links.nodes == 1 ? links.node_gb_per_s : links.nic_gb_per_s;
  for (const double each : list) {
    if (each > most * kSlack || each * (heads + 1) > links.node_gb_per_s * kSlack) continue;
    ChannelGraph graph{heads, each, each};
    // Then the speed between nodes is raised while it is below twice the speed inside; on one node nothing
    // holds it.
    for (const double more : list)
      if (more <= most * kSlack && more > graph.network_gb_per_s && more < 2 * each) {
        graph.network_gb_per_s = more;
        break;  // The list falls: the first is the highest.
      }
    return graph;
  }
  return {};
}

}  // namespace

Communicator find_channels(const GroupLinks& links) {
  assert(links.ranks > 1 && links.node_gb_per_s > 0 &&
         (links.nodes == 1 || (links.nics > 0 && links.nic_gb_per_s > 0)));
  Communicator comm;
  comm.ranks = links.ranks;
  comm.nodes = links.nodes;
  comm.generation = links.generation;
  comm.nvlink = links.nvlink;
  comm.plain_tree = links.generation >= Generation::kHopper || links.ranks == links.nodes;
  comm.ring = find_ring(links);
  comm.tree = comm.ring;
  // The chain of two GPUs uses one direction of a link per channel, so that channels run twice as fast.
  if (links.nodes == 1 && links.ranks == 2 && links.nvlink) comm.tree.node_gb_per_s *= 2;
  comm.nvls = find_nvls(links);
  // The fitted corrections (Profile::collectives) were found without these two: they go together.
  comm.variables.pat = 0;
  comm.x86_host = false;
  return comm;
}

}  // namespace orrery::nccl

#include "simulator/collective_time.hpp"

#include "simulator/transfer_links.hpp"

namespace orrery {

TransferCost collective_alone(CollectiveKind kind, std::int64_t bytes,
                              const std::vector<std::int32_t>& devices, const Router& router,
                              const Profile& profile) {
  if (devices.size() < 2) return {};
  const NodeType& node = router.cluster().node;
  const folding::Layout layout = folding::lay_out(devices, node.gpus);
  GroupShape shape = layout.shape(node);
  folding::LinkCounter counter(router);
  const bool messages = kind == CollectiveKind::kAllToAll;
  if (messages) shape.channels = 1;
  (messages ? folding::add_all_to_all : folding::add_ring)(layout, router, counter);
  std::vector<LinkUse> uses;
  // In an all-to-all a link's rate is shared by the messages that cross it; each carries 1 / (n − 1) of a
  // rank's bytes.
  const auto rate =
      static_cast<double>(counter.take(uses)) * (messages ? static_cast<double>(devices.size() - 1) : 1.0);
  return collective_cost(kind, bytes, shape, collective_machine(node), rate, profile);
}

GroupOnMachine group_on_machine(const std::vector<std::int32_t>& devices, const Router& router,
                                const Profile& profile) {
  const NodeType& node = router.cluster().node;
  const folding::Layout layout = folding::lay_out(devices, node.gpus);
  folding::LinkCounter counter(router);
  folding::add_ring(layout, router, counter);
  std::vector<LinkUse> uses;
  GroupOnMachine group;
  group.shape = layout.shape(node);
  group.channel_bytes_per_s = static_cast<double>(counter.take(uses));
  group.communicator =
      nccl_communicator(group.shape, collective_machine(node), group.channel_bytes_per_s, profile);
  return group;
}

}  // namespace orrery

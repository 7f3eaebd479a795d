#pragma once
// What one collective costs on a machine where nothing else runs.

#include <cstdint>
#include <vector>

#include "model/program.hpp"
#include "simulator/collective_cost.hpp"
#include "topology/cluster.hpp"
#include "topology/profile.hpp"

namespace orrery {

// `bytes` are those of the whole group (nccl-tests' size). REQUIRES: `devices` are different ones.
TransferCost collective_alone(CollectiveKind kind, std::int64_t bytes,
                              const std::vector<std::int32_t>& devices, const Router& router,
                              const Profile& profile);

// How such a group lies on the machine, and what NCCL finds for it. REQUIRES: two devices or more.
struct GroupOnMachine {
  GroupShape shape;
  double channel_bytes_per_s = 0;
  nccl::Communicator communicator;
};
GroupOnMachine group_on_machine(const std::vector<std::int32_t>& devices, const Router& router,
                                const Profile& profile);

}  // namespace orrery

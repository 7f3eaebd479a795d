#pragma once
// What ranks tell each other before their communicators are made: who is in which group, on which device, and
// the unique id that the first of each group has made for it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "executor/device/device.hpp"

namespace orrery::device {

// The device's name and the host that NCCL is told it is on (NCCL_HOSTID), where it is told: ranks of hosts
// that have different names share nothing for NCCL, not even the GPU that they share. "GPU 0 of host 'a'".
std::string with_nccl_host(const std::string& device);

// The ids of this rank's groups, in their order. All ranks of the run call it, once; also those without
// groups. `device`: what tells this rank's device from all others of the run, such as its UUID; empty: it
// isn't compared. `make_id` is called for each group in which this rank is the first. THROWS Error(kRuntime)
// where two ranks of one group have the same device, and where the ranks' groups don't fit together.
std::vector<std::string> share_ids(int rank, const std::vector<Group>& groups, std::string_view device,
                                   const std::function<std::string()>& make_id, const AllGather& all_gather);

}  // namespace orrery::device

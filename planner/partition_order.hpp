#pragma once
// In which order devices do the launches of all micro-batches that a partition gives them. A device takes
// whatever is ready (a backward first, then the earliest micro-batch), as in list scheduling; messages go
// between two devices in the order in which they are made. What comes out is one list of launches and
// messages in which everything stands after what it waits for, so that devices that each follow their part
// of it can't wait for each other for ever.

#include <cstdint>
#include <vector>

#include "base/sim_time.hpp"
#include "planner/launch.hpp"
#include "planner/partition.hpp"
#include "planner/partition_problem.hpp"

namespace orrery {

// A launch of one micro-batch, on the device of its ops.
struct PlacedLaunch {
  Launch launch;
  std::int32_t device = 0;
  Phase phase = Phase::kForward;
};

// A launch of a micro-batch, or a message: a tensor to a device that needs it.
struct PartitionEvent {
  std::int32_t launch = -1;  // −1: a message.
  TensorId tensor;
  std::int32_t to = -1;
  std::int32_t microbatch = 0;
  // Of a message: the event of the launch that had ended last on the receiver when the message was made; −1:
  // none had. A receive that is posted then holds no memory before it has to, and holds nobody up.
  std::int32_t after = -1;
};

struct PartitionOrder {
  std::vector<PlacedLaunch> launches;
  std::vector<PartitionEvent> events;
  SimTime makespan;  // An estimate: transfers share no links, launches cost nothing.
};

// `microbatches`: how many; 0: all of the problem's. At most as many are under way at a time as the partition
// has devices, which bounds what is kept for the backward.
PartitionOrder order_partition(const PartitionProblem& problem, const Partition& partition,
                               std::int32_t microbatches = 0);

}  // namespace orrery

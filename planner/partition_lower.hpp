#pragma once
// Partition → Program: a rank for each device in use, launches where their ops are, and a message wherever a
// device needs a tensor that another one makes: one for each tensor and device, kept for the backward.

#include "model/program.hpp"
#include "planner/partition.hpp"
#include "planner/partition_problem.hpp"

namespace orrery {

// Gradients are summed up over the micro-batches where the weights are, and updated there. Devices follow
// order_partition. REQUIRES: a partition of this problem.
Program lower_partition(const PartitionProblem& problem, const Partition& partition);

}  // namespace orrery

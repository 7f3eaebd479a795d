#pragma once
// Who sends how much to whom in one step: the communication graph of a Program's ranks. What placements are
// judged by.

#include <cstdint>
#include <vector>

#include "model/program.hpp"

namespace orrery {

// What a process group moves in a step for one purpose.
struct GroupTraffic {
  AxisId axis;
  std::vector<RankId> ranks;
  Purpose purpose = Purpose::kOther;
  // Through each link of a ring over the members, all channels together: of all-reduces twice (n − 1)/n of
  // the payload, of gathers and scatters once (simulator/collective_cost.hpp). A ring is also what trees and
  // NVLS are taken for.
  double ring_bytes = 0;
  double pair_bytes = 0;  // From each member to each other one, of all-to-alls: 1/n of the payload.
};

// Messages from one rank to another.
struct PairTraffic {
  AxisId axis;
  RankId from, to;
  Purpose purpose = Purpose::kPipeline;
  double bytes = 0;
};

// Copies between a rank's GPU and the memory of its process.
struct HostTraffic {
  RankId rank;
  double to_host_bytes = 0, from_host_bytes = 0;
};

struct RankTraffic {
  std::int32_t world_size = 0;
  std::vector<Axis> axes;            // The Program's.
  std::vector<GroupTraffic> groups;  // Groups of two and more, in the order of axes, groups and purposes.
  std::vector<PairTraffic> pairs;    // By sender, receiver, axis and purpose.
  std::vector<HostTraffic> copies;   // Ranks that copy, ascending.
};

// REQUIRES: verify(program) is empty.
RankTraffic rank_traffic(const Program& program);

}  // namespace orrery

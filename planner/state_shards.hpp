#pragma once
// How ZeRO 2 and 3 divide a parameter and its gradient: along one dimension of the tensor, each rank of the
// group has an equal piece, rounded up (as PyTorch's fully_shard does; the last ranks may have less, and
// their buffers are padded). What tensor and expert parallelism divide is divided again.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/graph.hpp"
#include "model/program.hpp"
#include "planner/groups.hpp"
#include "planner/sharding.hpp"

namespace orrery {

struct StateShard {
  PlacementId placement;
  std::int64_t elements = 0;  // One rank's, padded.
};

class StateShards {
 public:
  StateShards(const Graph& graph, const Sharding& sharding, const std::vector<Axis>& axes);

  // The first dimension that has something for every rank is divided, else the longest.
  void add(TensorId parameter, const ReductionAxes& reduction);
  // REQUIRES: the parameter was added with this shard axis.
  const StateShard& of(TensorId parameter, AxisId shard) const { return shards_.at({parameter, shard}); }

  // Those of the Sharding, and the shards'.
  const std::vector<Placement>& placements() const { return placements_; }

 private:
  std::int64_t local_size(DimId dim, const Placement& placement) const;

  const Graph& graph_;
  const Sharding& sharding_;
  const std::vector<Axis>& axes_;
  std::vector<Placement> placements_;
  std::map<std::pair<TensorId, AxisId>, StateShard> shards_;
};

}  // namespace orrery

#include "planner/state_shards.hpp"

#include <algorithm>

namespace orrery {

StateShards::StateShards(const Graph& graph, const Sharding& sharding, const std::vector<Axis>& axes)
    : graph_(graph), sharding_(sharding), axes_(axes), placements_(sharding.placements()) {}

std::int64_t StateShards::local_size(DimId dim, const Placement& placement) const {
  std::int64_t size = sharding_.global_sizes()[dim.index()];
  for (const Split& split : placement.splits) {
    if (split.dim == dim) size /= std::ssize(axes_[split.axis.index()].groups.front());
  }
  return size;
}

void StateShards::add(TensorId parameter, const ReductionAxes& reduction) {
  if (!reduction.shard.valid() || shards_.contains({parameter, reduction.shard})) return;
  const auto& shape = graph_[parameter].shape;
  Placement placement = placements_[sharding_.stored(parameter).index()];
  const auto size = [&](DimId dim) { return local_size(dim, placement); };
  auto divided = std::find_if(shape.begin(), shape.end(),
                              [&](DimId dim) { return size(dim) >= reduction.shard_degree; });
  if (divided == shape.end()) {
    divided =
        std::max_element(shape.begin(), shape.end(), [&](DimId a, DimId b) { return size(a) < size(b); });
  }
  const std::int64_t whole = size(*divided);
  const std::int64_t piece = (whole + reduction.shard_degree - 1) / reduction.shard_degree;
  StateShard shard;
  shard.elements = sharding_.stored_elements(parameter) / whole * piece;
  placement.splits.push_back({*divided, reduction.shard});
  const auto known = std::find(placements_.begin(), placements_.end(), placement);
  shard.placement = PlacementId(known - placements_.begin());
  if (known == placements_.end()) placements_.push_back(placement);
  shards_[{parameter, reduction.shard}] = shard;
}

}  // namespace orrery

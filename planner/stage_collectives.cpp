// What moves a tensor between two placements, and what sums partial results.

#include <algorithm>
#include <cassert>

#include "planner/stage_builder.hpp"

namespace orrery {
namespace {

// The split that `finer` has and `coarser` lacks.
const Split* extra_split(const Placement& finer, const Placement& coarser) {
  const auto found = std::find_if(finer.splits.begin(), finer.splits.end(), [&](const Split& split) {
    return std::find(coarser.splits.begin(), coarser.splits.end(), split) == coarser.splits.end();
  });
  return found == finer.splits.end() ? nullptr : &*found;
}

}  // namespace

TemplateInstruction StageBuilder::collective(const std::string& name, std::int32_t layer, CollectiveKind kind,
                                             AxisId axis, std::int64_t bytes, DType dtype) {
  TemplateInstruction instruction;
  instruction.label = symbols_.label(name);
  instruction.layer = layer;
  if (axis == sharding_.axes().context) {
    instruction.stream = kContextStream;
    instruction.purpose = Purpose::kContextParallel;
  } else if (axis == sharding_.axes().expert) {
    instruction.stream = kExpertStream;
    instruction.purpose = Purpose::kExpertParallel;
  } else {
    instruction.stream = kTensorStream;
    instruction.purpose =
        kind == CollectiveKind::kAllReduce ? Purpose::kTensorParallel : Purpose::kSequenceParallel;
  }
  instruction.work = Collective{kind, axis, bytes, dtype};
  return instruction;
}

// A tensor gathered from its stored placement to another one, for the launch that is being emitted.
StageBuilder::Place StageBuilder::rearranged(TensorId tensor, PlacementId placement, std::int32_t block) {
  const auto found = rearranged_.find({tensor, placement});
  if (found != rearranged_.end()) return found->second;
  const auto& placements = sharding_.placements();
  const Split& lost =
      *extra_split(placements[sharding_.stored(tensor).index()], placements[placement.index()]);
  const bool again = pass_ == PassKind::kBackwardWeight || (pass_ != PassKind::kForward && prefix_.empty() &&
                                                            graph_[tensor].kind == TensorKind::kActivation);
  std::string name = prefix_ + without_layer(graph_[tensor].name) + ".gather" + (again ? "_again" : "");
  const std::int32_t times = ++moves_[{name, block}];
  if (times > 1) name += "_" + std::to_string(times);
  TemplateInstruction move = collective(name, block, CollectiveKind::kAllGather, lost.axis,
                                        sharding_.bytes(tensor, placement), graph_[tensor].dtype);
  move.region = region_;
  read(move, tensor);
  Place place;
  place.buffer = add_buffer(name + ".whole", block, MemoryCategory::kCommunication, tensor, placement);
  touch(move, {place.buffer, false, true});
  append(std::move(move));
  rearranged_[{tensor, placement}] = place;
  return place;
}

void StageBuilder::rearrange_inputs(OpId op) {
  for (const TensorId input : graph_[op].inputs) {
    const PlacementId needed = sharding_.needed(op, input);
    if (needed != sharding_.stored(input)) rearranged(input, needed, graph_[op].block);
  }
}

// Brings an output from where its op leaves it to where it is stored. A partial one is summed over its group,
// in place or to each rank's part of the sequence; rows go between their tokens and their experts.
void StageBuilder::settle(OpId id, TensorId output, std::int32_t made) {
  const Op& op = graph_[id];
  const AxisId axis = sharding_.partial_over(id, output);
  const PlacementId left = sharding_.made(id, output), summed = sharding_.summed(id, output),
                    stored = sharding_.stored(output);
  const Place place = places_.at(output.value);
  const std::string name = prefix_ + without_layer(graph_[output].name);
  const auto buffer_at = [&](PlacementId placement, const char* what) {
    if (placement == stored) return place.buffer;
    return add_buffer(name + what, op.block, MemoryCategory::kCommunication, output, placement);
  };
  std::int32_t source = buffer_at(left, axis.valid() ? ".partial" : ".made");
  touch(list()[static_cast<std::size_t>(made)], {source, false, true});
  if (axis.valid()) {
    const bool scatter = left != summed;
    const std::string of = op.outputs.size() == 1 ? op.name : graph_[output].name;
    TemplateInstruction sum =
        collective(prefix_ + without_layer(of) + (scatter ? ".scatter" : ".reduce"), op.block,
                   scatter ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce, axis,
                   sharding_.bytes(output, left), graph_[output].dtype);
    const std::int32_t target = scatter ? buffer_at(summed, ".summed") : source;
    touch(sum, {source, false, !scatter});
    touch(sum, {target, false, true});
    append(std::move(sum));
    source = target;
  }
  if (summed != stored) {
    TemplateInstruction move =
        collective(name + ".exchange", op.block, CollectiveKind::kAllToAll, sharding_.axes().expert,
                   sharding_.bytes(output, stored), graph_[output].dtype);
    touch(move, {source, false, false});
    touch(move, {place.buffer, false, true});
    append(std::move(move));
  }
}

}  // namespace orrery
